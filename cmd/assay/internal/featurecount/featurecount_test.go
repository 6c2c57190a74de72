package featurecount_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/cmd/assay/internal/featurecount"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

func TestCountsNodesByValue(t *testing.T) {
	in := facts.NewInterner()
	node := func(vendor string, classes ...string) *facts.Facts {
		var devices []map[string]string
		for _, class := range classes {
			devices = append(devices, map[string]string{"class": class})
		}
		return facts.FromMap(map[string]facts.Feature{
			"cpu.model":  {Attributes: facts.NewAttributes(map[string]string{"vendor": vendor, "token": vendor})},
			"pci.device": {Instances: facts.NewInstances(devices)},
		}, in)
	}
	for pattern, want := range map[string][]*featurecount.Count{
		"": {
			{Name: "cpu.model", Type: "attributes", Nodes: 3, Values: map[string]int{}},
			{Name: "pci.device", Type: "instances", Nodes: 3, Values: map[string]int{"2": 3}},
		},
		"cpu.model.*": {
			{Name: "cpu.model.token", Type: "attribute", Nodes: 3, Values: map[string]int{rules.Hidden: 3}},
			{Name: "cpu.model.vendor", Type: "attribute", Nodes: 3, Values: map[string]int{"AMD": 1, "Intel": 2}},
		},
		"PCI.device.class": {
			{Name: "pci.device.class", Type: "attribute of instances", Nodes: 3, Values: map[string]int{"02": 3, "03": 1}},
		},
	} {
		c := featurecount.New(pattern, rules.Masking{})
		c.Add(node("Intel", "02", "02"))
		c.Add(node("Intel", "02", "02"))
		c.Add(node("AMD", "03", "02"))
		if diff := cmp.Diff(want, c.List()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", pattern, diff)
		}
	}
}
