package builtin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/discovery/builtin"
)

func TestConfigurationIsWrittenOverTheDefaults(t *testing.T) {
	defaults := builtin.DefaultConfig()
	for name, tt := range map[string]struct {
		text string
		want func(*builtin.Config)
	}{
		"nothing": {"{}", func(*builtin.Config) {}},
		"a list replaces its default and no other": {
			"pci:\n  deviceClassWhitelist: [\"02\"]\n",
			func(c *builtin.Config) { c.PCI.DeviceClassWhitelist = []string{"02"} },
		},
		"an empty list is empty": {
			"cpu:\n  cpuid:\n    attributeBlacklist: []\n",
			func(c *builtin.Config) { c.CPU.CPUID.AttributeBlacklist = []string{} },
		},
		"every name": {
			"cpu: {cpuid: {attributeBlacklist: [A], attributeWhitelist: [B]}}\n" +
				"kernel: {kconfigFile: /etc/kconfig, configOpts: [HZ]}\n" +
				"pci: {deviceClassWhitelist: [C], deviceLabelFields: [class]}\n" +
				"usb: {deviceClassWhitelist: [D], deviceLabelFields: [serial]}\n",
			func(c *builtin.Config) {
				c.CPU.CPUID.AttributeBlacklist, c.CPU.CPUID.AttributeWhitelist = []string{"A"}, []string{"B"}
				c.Kernel.KconfigFile, c.Kernel.ConfigOpts = "/etc/kconfig", []string{"HZ"}
				c.PCI.DeviceClassWhitelist, c.PCI.DeviceLabelFields = []string{"C"}, []string{"class"}
				c.USB.DeviceClassWhitelist, c.USB.DeviceLabelFields = []string{"D"}, []string{"serial"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := builtin.DefaultConfig(), builtin.DefaultConfig()
			tt.want(&want)
			if err := yaml.UnmarshalStrict([]byte(tt.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(defaults, builtin.DefaultConfig()); diff != "" {
		t.Errorf("the defaults changed (-before +after):\n%s", diff)
	}
}

func TestSourcesHaveDistinctNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range builtin.Sources(builtin.DefaultConfig()) {
		if seen[s.Name()] {
			t.Errorf("two sources are named %q", s.Name())
		}
		seen[s.Name()] = true
	}
}
