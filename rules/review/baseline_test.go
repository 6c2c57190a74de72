package review_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// TestALevelThatNothingGives: all nodes deviated from a tree with a misspelled label, and nothing said why.
func TestALevelThatNothingGives(t *testing.T) {
	object := &assayv1alpha1.NodeBaseline{Spec: assayv1alpha1.NodeBaselineSpec{Levels: []assayv1alpha1.BaselineLevel{
		{Name: "block", Label: "example.com/block"}, {Name: "rack", Label: "example.com/rak"}, {Name: "host", Label: "kubernetes.io/hostname"},
	}}}
	labels := []string{"example.com/block", "example.com/rack", "kubernetes.io/hostname"}
	for name, test := range map[string]struct {
		known review.Known
		want  []string
	}{
		"Cluster": {review.Known{Labels: func() ([]string, bool) { return labels, true }}, []string{
			"spec.levels[1].label: no node of this cluster has the label example.com/rak, and no rule names it; did you mean example.com/rack?",
		}},
		"Given":     {review.Known{Labels: func() ([]string, bool) { return append(labels, "example.com/rak"), true }}, nil},
		"Starting":  {review.Known{Labels: func() ([]string, bool) { return nil, false }}, nil},
		"NoCluster": {review.Known{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range review.Review(object, test.known).Warnings {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
