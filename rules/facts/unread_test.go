package facts_test

import (
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

// TestTheBootIsOfNoSource: a worker publishes it without having read the source system.
func TestTheBootIsOfNoSource(t *testing.T) {
	published := map[string]facts.Feature{
		nfdv1alpha1.BootFeature:   {Attributes: facts.NewAttributes(map[string]string{nfdv1alpha1.BootElement: "b1"})},
		nfdv1alpha1.UnreadFeature: {Flags: facts.NewFlags("custom")},
		"pci.device":              {Instances: facts.NewInstances(nil)},
	}
	f := facts.FromMap(published, nil)
	for label, want := range map[string]bool{"system-rack": true, "pci-10de.present": false, "custom-x": true} {
		if got := f.MayHaveLabel(label); got != want {
			t.Errorf("a rule that was not read may give %s: %t, want %t", label, got, want)
		}
	}
	if got := facts.UnreadOf([]string{"system"}, []string{nfdv1alpha1.BootFeature}); got != nil {
		t.Errorf("the boot is unknown while %q is not read", got)
	}
	if got := facts.UnreadOf([]string{"system"}, []string{"system.osrelease"}); len(got) != 1 {
		t.Errorf("what the source system finds is known although it is not read")
	}
}
