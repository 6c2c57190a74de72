package kernel_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/kernel"
)

// minimal is a kernel about which nothing is unknown.
const minimal = `-- host.json --
{"uname": {"release": "6.1.0"}}
-- boot/config-6.1.0 --
CONFIG_SMP=y
-- lib/modules/6.1.0/modules.builtin --
kernel/fs/ext4/ext4.ko
`

func TestPlatform(t *testing.T) {
	const efivars = "sys/firmware/efi/efivars/"
	secureBoot := func(value ...byte) string {
		return "-- " + efivars + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c (base64) --\n" + base64.StdEncoding.EncodeToString(value) + "\n"
	}
	for name, tt := range map[string]struct {
		archive, feature string
		want             map[string]string
		problem          bool
	}{
		"cgroup 2":              {archive: "-- sys/fs/cgroup/ --\ncgroup.controllers: cpu memory\n", feature: kernel.CgroupFeature, want: map[string]string{"version": "2"}},
		"cgroup 1":              {archive: "-- sys/fs/cgroup/ --\nmemory/tasks: 1\n", feature: kernel.CgroupFeature, want: map[string]string{"version": "1"}},
		"cgroup 1 with 2":       {archive: "-- sys/fs/cgroup/ --\nmemory/tasks: 1\nunified/cgroup.controllers: cpu\n", feature: kernel.CgroupFeature, want: map[string]string{"version": "1"}},
		"no cgroups mounted":    {archive: "-- sys/fs/cgroup/ --\n", feature: kernel.CgroupFeature},
		"no IOMMU":              {feature: kernel.IOMMUFeature, want: map[string]string{"enabled": "false", "group_count": "0"}},
		"IOMMU":                 {archive: "-- sys/class/iommu/ --\ndmar0/x: 1\n-- sys/kernel/iommu_groups/ --\n0/type: DMA\n1/type: DMA\n", feature: kernel.IOMMUFeature, want: map[string]string{"enabled": "true", "group_count": "2"}},
		"no UEFI":               {feature: kernel.SecureBootFeature, want: map[string]string{"enabled": "false"}},
		"secure boot":           {archive: secureBoot(6, 0, 0, 0, 1), feature: kernel.SecureBootFeature, want: map[string]string{"enabled": "true"}},
		"secure boot off":       {archive: secureBoot(6, 0, 0, 0, 0), feature: kernel.SecureBootFeature, want: map[string]string{"enabled": "false"}},
		"firmware without it":   {archive: "-- " + efivars + "BootOrder-x --\n\n", feature: kernel.SecureBootFeature, want: map[string]string{"enabled": "false"}},
		"variables not mounted": {archive: "-- " + efivars + " --\n", feature: kernel.SecureBootFeature},
		"firmware is hidden":    {archive: "-- sys/firmware/ --\n", feature: kernel.SecureBootFeature, problem: true},
		"variable cut off":      {archive: secureBoot(6, 0), feature: kernel.SecureBootFeature, problem: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(minimal + tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := kernel.New(kernel.DefaultConfig()).Discover(context.Background(), h)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Features.Attributes[tt.feature].Elements); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.feature, diff)
			}
			if got := len(r.Problems) > 0; got != tt.problem {
				t.Errorf("problems = %v, want some: %t", r.Problems, tt.problem)
			}
		})
	}
}

// TestUnknownConfigurationIsAbsent: no option is known to be unset, and no module known not to be loaded.
func TestUnknownConfigurationIsAbsent(t *testing.T) {
	const uname = "-- host.json --\n{\"uname\": {\"release\": \"6.1.0\"}}\n"
	for name, tt := range map[string]struct {
		archive      string
		config, mods bool // published
		problem      string
	}{
		"nowhere":                      {uname, false, false, "not found in /proc/config.gz, /usr/src/linux-6.1.0/.config, /usr/src/linux-rt-6.1.0/.config, "},
		"real-time sources":            {uname + "-- usr/src/linux-rt-6.1.0/.config --\nCONFIG_PREEMPT_RT=y\n", true, true, ""},
		"real-time headers":            {uname + "-- usr/src/linux-rt-headers-6.1.0/.config --\nCONFIG_PREEMPT_RT=y\n", true, true, ""},
		"kernel without modules":       {minimal, true, true, ""},
		"kernel whose list is hidden":  {minimal + "-- boot/config-6.1.0 --\nCONFIG_MODULES=y\n", true, false, "/proc/modules: file does not exist"},
		"not a configuration":          {minimal + "-- boot/config-6.1.0 --\n<html>\n", false, false, "/boot/config-6.1.0 sets no option"},
		"another one that can be read": {minimal + "-- usr/src/linux/.config (error EACCES) --\n", true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := kernel.New(kernel.DefaultConfig()).Discover(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			_, config := r.Features.Attributes[kernel.ConfigFeature]
			_, mods := r.Features.Flags[kernel.LoadedModuleFeature]
			if config != tt.config || mods != tt.mods {
				t.Errorf("configuration %t, modules %t, want %t, %t", config, mods, tt.config, tt.mods)
			}
			if text := errors.Join(r.Problems...); tt.problem != "" && !strings.Contains(fmt.Sprint(text), tt.problem) {
				t.Errorf("problems %v, want %q", text, tt.problem)
			}
		})
	}
}
