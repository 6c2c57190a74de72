package doctor

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// TestReportsWorkersThatRejectTheirConfiguration although the ConfigMaps are valid, and no one else who claims that.
func TestReportsWorkersThatRejectTheirConfiguration(t *testing.T) {
	object := func(namespace, name, node, text string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
			Annotations: map[string]string{assayv1alpha1.InvalidConfigurationAnnotation: text},
		}}
	}
	e := lists(t, map[string]any{"nodefeatures": metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{
		object("assay", "n1", "n1", "worker.conf:1:2: unknown key"), object("assay", "n2", "n2", "worker.conf:1:2: unknown key"),
		object("assay", "n3", "n3", ""), object("assay", "vendor", "n3", "forged"), object("tenant", "n3", "n3", "forged"),
	}}})
	if err := e.rejections(t.Context(), []string{"assay"}); err != nil {
		t.Fatal(err)
	}
	want := "2 Nodes: n1, n2: the worker keeps its previous configuration: worker.conf:1:2: unknown key"
	if len(e.found) != 1 || !strings.HasPrefix(e.found[0].Message, want) {
		t.Errorf("found %v, want %s", e.found, want)
	}
}
