package pci_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/pci"
)

const archive = `
-- sys/bus/pci/devices/0000:01:00.0/ --
class: 0x030200
vendor: 0x10DE
device: 0x20b2
subsystem_vendor: 0x10de
subsystem_device: 0x1463
sriov_totalvfs: 16
-- sys/bus/pci/devices/0000:02:00.0/ --
class: 0x020000
vendor: 0x8086
device: 0x1572
subsystem_vendor: 0x8086
subsystem_device: 0x0006
`

func TestLabels(t *testing.T) {
	tests := map[string]struct {
		config  pci.Config
		want    map[string]string
		problem string
	}{
		"defaults": {
			config: pci.DefaultConfig(),
			want:   map[string]string{"pci-0302_10de.present": "true", "pci-0302_10de.sriov.capable": "true"},
		},
		"fields take their own order": {
			config: config([]string{"0300", "0302"}, []string{"subsystem_device", "device", "class"}),
			want:   map[string]string{"pci-0302_20b2_1463.present": "true", "pci-0302_20b2_1463.sriov.capable": "true"},
		},
		"class in upper case is a prefix too": {
			config: config([]string{"02", "0B40"}, []string{"vendor"}),
			want:   map[string]string{"pci-8086.present": "true"},
		},
		"unknown field is named and left out": {
			config:  config([]string{"02"}, []string{"vendor", "color"}),
			want:    map[string]string{"pci-8086.present": "true"},
			problem: `sources.pci.deviceLabelFields, deviceLabelForms: ["color"]`,
		},
		"unknown fields only mean the default": {
			config:  config([]string{"02"}, []string{"color"}),
			want:    map[string]string{"pci-0200_8086.present": "true"},
			problem: `["color"]`,
		},
		"forms beside each other": {
			config: forms(config([]string{"03"}, []string{"class", "vendor"}), []string{"vendor"}, []string{"device", "vendor"}),
			want: map[string]string{
				"pci-0302_10de.present": "true", "pci-0302_10de.sriov.capable": "true",
				"pci-10de.present": "true", "pci-10de.sriov.capable": "true",
				"pci-10de_20b2.present": "true", "pci-10de_20b2.sriov.capable": "true",
			},
		},
		"form of unknown fields is none": {
			config:  forms(config([]string{"02"}, []string{"vendor"}), []string{"color"}),
			want:    map[string]string{"pci-8086.present": "true"},
			problem: `["color"]`,
		},
		"no class": {config: config(nil, []string{"class"}), want: map[string]string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := pci.New(tt.config).Discover(context.Background(), h)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if tt.problem == "" && len(r.Problems) > 0 ||
				tt.problem != "" && (len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), tt.problem)) {
				t.Errorf("problems = %v, want %q", r.Problems, tt.problem)
			}
		})
	}
}

func config(classes, fields []string) pci.Config {
	return pci.Config{DeviceConfig: discovery.DeviceConfig{DeviceClassWhitelist: classes, DeviceLabelFields: fields}}
}

func forms(c pci.Config, more ...[]string) pci.Config {
	c.DeviceLabelForms = more
	return c
}
