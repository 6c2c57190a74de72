package system_test

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/system"
)

func TestBoardsAreNamedByTheirDeviceTree(t *testing.T) {
	const mounted = "-- host.json --\n{}\n-- proc/version --\nLinux\n-- sys/devices/ --\n-- sys/firmware/memmap/0/ --\ntype: RAM\n-- etc/os-release --\nID=debian\n"
	tree := func(model, compatible string) string {
		return mounted + "-- sys/firmware/devicetree/base/model (base64) --\n" + base64.StdEncoding.EncodeToString([]byte(model)) +
			"\n-- sys/firmware/devicetree/base/compatible (base64) --\n" + base64.StdEncoding.EncodeToString([]byte(compatible)) + "\n"
	}
	for name, tt := range map[string]struct {
		archive    string
		absent     bool
		model      map[string]string
		compatible []string
		problem    string
	}{
		"Raspberry Pi": {
			archive:    tree("Raspberry Pi 4 Model B Rev 1.2\x00", "raspberrypi,4-model-b\x00brcm,bcm2711\x00"),
			model:      map[string]string{"model": "Raspberry Pi 4 Model B Rev 1.2"},
			compatible: []string{"brcm,bcm2711", "raspberrypi,4-model-b"},
		},
		"Jetson": {
			archive:    tree("NVIDIA Jetson Orin Nano Developer Kit\x00", "nvidia,p3768-0000+p3767-0005\x00nvidia,p3767-0005\x00nvidia,tegra234\x00"),
			model:      map[string]string{"model": "NVIDIA Jetson Orin Nano Developer Kit"},
			compatible: []string{"nvidia,p3767-0005", "nvidia,p3768-0000+p3767-0005", "nvidia,tegra234"},
		},
		"no device tree":              {archive: mounted, model: map[string]string{}},
		"a device tree without model": {archive: mounted + "-- sys/firmware/devicetree/base/chosen/ --\n", model: map[string]string{}},
		"a model that is not text": {
			archive:    tree("Board\x1b[31m\n", "a,b\x00"),
			model:      map[string]string{"model": "Board_[31m"},
			compatible: []string{"a,b"},
		},
		"compatible is cut off":    {archive: tree("Board\x00", "a,b\x00c,"), absent: true, problem: "is not a list of at most 32 strings that end with zero bytes"},
		"an empty string":          {archive: tree("Board\x00", "a,b\x00\x00"), absent: true, problem: "is not a manufacturer and a model"},
		"compatible is a web page": {archive: tree("Board\x00", "<html>\x00"), absent: true, problem: "is not a manufacturer and a model"},
		"more than a board can be": {archive: tree("Board\x00", strings.Repeat("a,b\x00", 33)), absent: true, problem: "is not a list of at most 32 strings"},
		"the runtime hides the tree": {
			archive: strings.Replace(mounted, "-- sys/firmware/memmap/0/ --\ntype: RAM\n", "-- sys/firmware/ --\n", 1),
			absent:  true, problem: "/sys/firmware is empty: a container runtime hides it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := system.New().Discover(t.Context(), h.Checked())
			if err != nil {
				t.Fatal(err)
			}
			if tt.problem == "" && len(r.Problems) > 0 || tt.problem != "" && (len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), tt.problem)) {
				t.Errorf("problems %v, want %q", r.Problems, tt.problem)
			}
			attributes, ok := r.Features.Attributes[system.DeviceTreeFeature]
			if ok == tt.absent {
				t.Errorf("the feature exists: %t, want %t", ok, !tt.absent)
			}
			if diff := cmp.Diff(tt.model, attributes.Elements); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.compatible, slices.Sorted(maps.Keys(r.Features.Flags[system.DeviceTreeFeature].Elements))); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}
