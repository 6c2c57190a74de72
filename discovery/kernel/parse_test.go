package kernel_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/kernel"
)

func TestParseVersion(t *testing.T) {
	for release, want := range map[string]map[string]string{
		"6.18.44-fc-v595":       {"full": "6.18.44-fc-v595", "major": "6", "minor": "18", "revision": "44"},
		"4.18.0-372.el8.x86_64": {"full": "4.18.0-372.el8.x86_64", "major": "4", "minor": "18", "revision": "0"},
		"6.9-rc1":               {"full": "6.9-rc1", "major": "6", "minor": "9", "revision": ""},
		"7":                     {"full": "7", "major": "7", "minor": "", "revision": ""},
		"5.10.0+deb~1":          {"full": "5.10.0_deb_1", "major": "5", "minor": "10", "revision": "0"},
		"6.1.0+":                {"full": "6.1.0", "major": "6", "minor": "1", "revision": "0"},
		// Windows Subsystem for Linux
		"5.15.153.1-microsoft-standard-WSL2": {"full": "5.15.153.1-microsoft-standard-WSL2", "major": "5", "minor": "15", "revision": "153"},
		"mainline":                           {"full": "mainline"},
		"":                                   {"full": ""},
		"6..1":                               {"full": "6..1", "major": "6", "minor": "", "revision": ""},
		"6.1." + strings.Repeat("1", 70):     {"full": "6.1." + strings.Repeat("1", 59), "major": "6", "minor": "1", "revision": strings.Repeat("1", 59)},
	} {
		if diff := cmp.Diff(want, kernel.ParseVersion(release)); diff != "" {
			t.Errorf("ParseVersion(%q) (-want +got):\n%s", release, diff)
		}
	}
}

func TestParseConfig(t *testing.T) {
	got := kernel.ParseConfig([]byte(`#
# CONFIG_NOT is not set
CONFIG_Y=y
CONFIG_M=m
CONFIG_N=n
CONFIG_INT=250
CONFIG_HEX=0x1000
CONFIG_TEXT="a b"
CONFIG_EQ="console=ttyS0,115200 root=/dev/sda"
CONFIG_EMPTY=""
CONFIG_QUOTE="
CONFIG_=y
CONFIG_BAD NAME=y
 CONFIG_INDENTED=y
NOT_AN_OPTION=y
CONFIG_CRLF=y` + "\r\n" + `CONFIG_LAST=y`))
	want := map[string]string{
		"Y": "y", "M": "m", "N": "n", "INT": "250", "HEX": "0x1000", "TEXT": "a b", "EQ": "console=ttyS0,115200 root=/dev/sda",
		"EMPTY": "", "QUOTE": `"`, "CRLF": "y", "LAST": "y",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestParseModules(t *testing.T) {
	got, err := kernel.ParseModules([]byte("nvme 49152 2 - Live 0xffffffffc0200000\nnvme_core 1 1 nvme, Live 0x0\n\n"))
	if diff := cmp.Diff([]string{"nvme", "nvme_core"}, got); diff != "" || err != nil {
		t.Errorf("error %v, modules (-want +got):\n%s", err, diff)
	}
	for _, part := range []string{"\xff\xfe 1\n", "nvme 1 0 - Live 0x0\nlast", "nvme many\n", "<html>\n"} {
		if got, err := kernel.ParseModules([]byte(part)); err == nil {
			t.Errorf("ParseModules(%q) = %q, want an error: modules may be missing", part, got)
		}
	}
	got = kernel.ParseBuiltin([]byte("kernel/drivers/char/hw_random/tpm-rng.ko\nkernel/fs/ext4/ext4.ko\nREADME\n/\n"))
	if diff := cmp.Diff([]string{"tpm_rng", "ext4"}, got); diff != "" {
		t.Errorf("built-in modules (-want +got):\n%s", diff)
	}
}

func TestConfigurationIsSearchedUnlessNamed(t *testing.T) {
	const archive = minimal + `
-- boot/config-6.1.0 --
CONFIG_FROM="boot"
-- usr/src/linux/.config --
CONFIG_FROM="source"
-- etc/my-config --
CONFIG_FROM="mine"
`
	for name, tt := range map[string]struct{ file, want string }{
		"searched": {"", "source"},
		"named":    {"/etc/my-config", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(archive))
			if err != nil {
				t.Fatal(err)
			}
			src := kernel.New(kernel.Config{KconfigFile: tt.file, ConfigOpts: []string{"FROM", "ABSENT"}})
			for range 2 { // the second time from the cache
				r, err := src.Discover(context.Background(), h)
				if err != nil || len(r.Problems) > 0 {
					t.Fatal(err, r.Problems)
				}
				if got := r.Labels["kernel-config.FROM"]; got != tt.want {
					t.Errorf("label = %q, want %q", got, tt.want)
				}
				if v, ok := r.Labels["kernel-config.ABSENT"]; ok {
					t.Errorf("label of an absent option = %q", v)
				}
			}
		})
	}
}

func TestNamedConfigurationThatIsMissingIsAProblem(t *testing.T) {
	h, err := host.FromArchive([]byte(minimal + "-- proc/modules --\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := kernel.New(kernel.Config{KconfigFile: "/etc/typo"}).Discover(context.Background(), h)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), "/etc/typo") {
		t.Errorf("problems = %v, %v, want one about /etc/typo", r.Problems, err)
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("CONFIG_A=\"b\"\nnvme 1 1 - Live\nkernel/fs/a-b.ko\n"), "6.1.0-18-amd64")
	f.Add([]byte("CONFIG_A=\"\x00\nCONFIG_=\"\xff"), "..+")
	f.Fuzz(func(t *testing.T, data []byte, release string) {
		for k, v := range kernel.ParseConfig(data) {
			if k == "" || len(k) > len(data) || len(v) > host.MaxValueLength {
				t.Errorf("option %q = %q", k, v)
			}
		}
		loaded, _ := kernel.ParseModules(data)
		for _, m := range append(loaded, kernel.ParseBuiltin(data)...) {
			if m == "" || strings.ContainsAny(m, " \n/=") {
				t.Errorf("module %q", m)
			}
		}
		if full := kernel.ParseVersion(release)["full"]; len(full) > 63 {
			t.Errorf("invalid label value %q of the full version", full)
		}
	})
}

func TestModulesWithAVersion(t *testing.T) {
	h, err := host.FromArchive([]byte(minimal + `
-- sys/module/ --
ahci/version: 3.0
i915/srcversion: 5A6B
kvm/parameters/nested: Y
nvidia/version: 580.95.05
-- sys/module/broken/version (error EACCES) --
-- sys/module/empty/version --
`))
	if err != nil {
		t.Fatal(err)
	}
	before, err := host.FromArchive([]byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	r, err := kernel.New(kernel.DefaultConfig()).Discover(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	without, err := kernel.New(kernel.DefaultConfig()).Discover(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range r.Features.Instances[kernel.ModuleFeature].Elements {
		got[e.Attributes["name"]] = e.Attributes["version"]
	}
	want := map[string]string{"ahci": "3.0", "nvidia": "580.95.05", "broken": "unknown", "empty": "unknown"}
	if diff := cmp.Diff(want, got); diff != "" || len(r.Problems) != len(without.Problems)+2 {
		t.Errorf("problems %v, versions (-want +got):\n%s", r.Problems, diff)
	}
}
