package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// TestOnlyAJoiningNodeThatKeepsLabelsIsUnready checks when unmet labels of requests set the condition FeaturesReady.
func TestOnlyAJoiningNodeThatKeepsLabelsIsUnready(t *testing.T) {
	for name, tc := range map[string]struct {
		unmet unmet
		want  string
	}{
		"LabelsAreKept":    {unmet{held: true, labels: []string{"features.assay.dev/ml.amx"}}, assayv1alpha1.ReasonLabelsUnmet},
		"LabelsAreRemoved": {unmet{labels: []string{"features.assay.dev/ml.amx"}}, ""},
		"NoLabels":         {unmet{held: true}, ""},
	} {
		got := ""
		if c := tc.unmet.condition(); c != nil {
			got = c.Reason
		}
		if got != tc.want {
			t.Errorf("%s: reason %q, want %q", name, got, tc.want)
		}
	}
}

// TestFeaturesOfAnEarlierBootAreNotCurrent compares the boot that a worker has published with the boot that the kubelet reports.
func TestFeaturesOfAnEarlierBootAreNotCurrent(t *testing.T) {
	for name, tc := range map[string]struct {
		published, reported string
		want                bool
	}{
		"SameBoot":           {"b1", "b1", true},
		"Rebooted":           {"b1", "b2", false},
		"WorkerWithoutBoot":  {"", "b2", true},
		"KubeletWithoutBoot": {"b1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			own := &nodefeature.NodeFeature{}
			own.Spec.Features.Facts = facts.FromMap(map[string]facts.Feature{}, nil)
			if tc.published != "" {
				own.Spec.Features.Facts = facts.FromMap(map[string]facts.Feature{
					bootFeature: {Attributes: facts.NewAttributes(map[string]string{bootElement: tc.published})},
				}, nil)
			}
			node := &corev1.Node{}
			node.Status.NodeInfo.BootID = tc.reported
			if got := current(&judge{node: node, state: inputs.State{Own: own}}); got != tc.want {
				t.Errorf("current: %t, want %t", got, tc.want)
			}
		})
	}
	if current(&judge{node: &corev1.Node{}}) {
		t.Error("a node without a worker's NodeFeature is current")
	}
}
