package review_test

import (
	"slices"
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

// TestFeaturesThatDoNotCountHere reviews NodeFeatures with what only the node's own worker says, and with devices, which come from ResourceSlices.
func TestFeaturesThatDoNotCountHere(t *testing.T) {
	const ignored = ": the controller ignores this feature here: it counts only in the NodeFeature of the node's own worker, which has the name of the node"
	markers := []string{"spec.features.flags[source.unread]" + ignored, "spec.features.attributes[system.boot]" + ignored}
	for name, test := range map[string]struct {
		known           review.Known
		namespace, name string
		want            []string
	}{
		"Worker":           {review.Known{Namespace: "assay-system"}, "assay-system", "n1", nil},
		"Vendor":           {review.Known{Namespace: "assay-system"}, "assay-system", "vendor", markers},
		"OtherNamespace":   {review.Known{Namespace: "assay-system"}, "vendor", "n1", markers},
		"UnknownNamespace": {review.Known{}, "vendor", "n1", nil},
		"UnknownVendor":    {review.Known{}, "vendor", "vendor", markers},
	} {
		t.Run(name, func(t *testing.T) {
			object := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: test.name, Namespace: test.namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"}}}
			object.Spec.Features.Flags = map[string]nfdv1alpha1.FlagFeatureSet{"source.unread": {}}
			object.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"system.boot": {}}
			object.Spec.EncodedInstances = `{"dra.device": []}`
			found := review.Review(object, test.known)
			var got []string
			for _, w := range found.Warnings {
				got = append(got, w.String())
			}
			want := append(slices.Clone(test.want), "spec.encodedInstances[dra.device]: the controller ignores this feature: it reads dra.* from ResourceSlices")
			if len(found.Errors) > 0 || !slices.Equal(got, want) {
				t.Errorf("got %v, %q, want %q", found.Errors, got, want)
			}
		})
	}
}
