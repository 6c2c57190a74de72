package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

func TestStatusIsCutAndSaysSo(t *testing.T) {
	for count, want := range map[int]struct {
		names   int
		message string
	}{
		0: {0, ""}, maxNodes: {maxNodes, ""}, maxNodes + 1: {maxNodes, fmt.Sprintf("cut at %d names", maxNodes)},
	} {
		var members []string
		for i := range count {
			members = append(members, fmt.Sprintf("node-%05d", i))
		}
		s := status(&nfdv1alpha1.NodeFeatureGroup{}, &program{}, members, "")
		if len(s.Nodes) != want.names || *s.Count != int32(count) {
			t.Errorf("%d members: the status names %d and counts %d, want %d and all", count, len(s.Nodes), *s.Count, want.names)
		}
		if got := s.Conditions[0].Message; !strings.HasSuffix(got, want.message) || want.message == "" && got != "" {
			t.Errorf("%d members: the condition says %q, want %q", count, got, want.message)
		}
	}
}

// A worker publishes without a source that does not answer after a boot: whether its node is in the group is unknown.
func TestANodeStaysInItsGroupWhileASourceIsNotRead(t *testing.T) {
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "r", MatchFeatures: nfdv1alpha1.FeatureMatcher{{
		Feature: "pci.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"vendor": {Op: nfdv1alpha1.MatchExists}},
	}}}}}
	set, report := rules.CompileSpec("g", spec, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	p := &program{rules: rules.Link(rules.Options{}, set)}
	node := func(name string, unread ...string) *inputs.State {
		features := map[string]facts.Feature{}
		if len(unread) > 0 {
			features[nfdv1alpha1.UnreadFeature] = facts.Feature{Flags: facts.NewFlags(unread...)}
		}
		return &inputs.State{Input: rules.Input{Node: rules.Node{Name: name}, Facts: facts.FromMap(features, nil)}}
	}
	nodes := []*inputs.State{node("joins", "pci"), node("other", "usb"), node("read"), node("stays", "pci")}
	before := &nfdv1alpha1.NodeFeatureGroupStatus{Nodes: []nfdv1alpha1.FeatureGroupNode{{Name: "other"}, {Name: "read"}, {Name: "stays"}}}
	if got := p.members(nodes, before); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("the members are %q, want the one of which it is unknown whether it has left", got)
	}
}
