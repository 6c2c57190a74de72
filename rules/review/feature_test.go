package review_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// TestNodeFeatureOfAnUnknownNode reviews NodeFeatures about a Node that exists, and about one that does not.
func TestNodeFeatureOfAnUnknownNode(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		known  bool
		warned string
	}{
		"Exists":   {"n1", true, ""},
		"Unknown":  {"nosuchnode", true, `metadata.labels[nfd.node.kubernetes.io/node-name]: the cluster has no Node "nosuchnode"`},
		"NotKnown": {"nosuchnode", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := review.Known{HasNode: func(name string) (bool, bool) { return name == "n1", test.known }}
			object := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: test.node}}}
			found := review.Review(object, k)
			var warnings []string
			for _, w := range found.Warnings {
				warnings = append(warnings, w.String())
			}
			if text := strings.Join(warnings, "\n"); len(found.Errors) > 0 || test.warned == "" && text != "" || !strings.HasPrefix(text, test.warned) {
				t.Errorf("got %v, %q, want %q", found.Errors, text, test.warned)
			}
		})
	}
}
