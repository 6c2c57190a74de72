package offline_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/manifest"
)

// TestNodeFeaturesWithoutANodeDoNotCount: the command line counted them for the node of their name, the controller ignores them.
func TestNodeFeaturesWithoutANodeDoNotCount(t *testing.T) {
	const object = `{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeature, metadata: {name: n, namespace: ours%s}, spec: {labels: {a: b}}}`
	for labels, want := range map[string]string{
		"": "NodeFeature ours/n is left out: label nfd.node.kubernetes.io/node-name is missing; the controller ignores this object",
		", labels: {nfd.node.kubernetes.io/node-name: n}": "",
	} {
		list, err := manifest.Features("n.yaml", fmt.Appendf(nil, object, labels), nil)
		if err != nil {
			t.Fatal(err)
		}
		fleet := offline.New(gather.Policy{Namespace: "ours"}, offline.Objects{Published: list})
		if got := strings.Join(fleet.Notes(), "\n"); got != want {
			t.Errorf("the notes are %q, want %q", got, want)
		}
		if counts := len(fleet.Input("n").Labels) > 0; counts != (want == "") {
			t.Errorf("labels %q: the object counts: %t", labels, counts)
		}
	}
}

// TestTheYoungestOfTooManyAreLeftOut: the controller limits the NodeFeatures of other publishers of a node.
func TestTheYoungestOfTooManyAreLeftOut(t *testing.T) {
	const over = 2
	var list []gather.Published
	for i := range nodefeature.MaxForeign + over {
		list = append(list, gather.Published{Namespace: "vendor", Name: fmt.Sprintf("f%02d", i), Node: "n", Created: metav1.Unix(int64(1000-i), 0)})
	}
	fleet := offline.New(gather.Policy{Namespace: "ours"}, offline.Objects{Published: list})
	if got := len(fleet.Published("n")); got != nodefeature.MaxForeign {
		t.Errorf("%d NodeFeatures count, want %d", got, nodefeature.MaxForeign)
	}
	notes := strings.Join(fleet.Notes(), "\n")
	if len(fleet.Notes()) != over || !strings.Contains(notes, "vendor/f00 is left out") || !strings.Contains(notes, "vendor/f01 is left out") {
		t.Errorf("the notes are %s", notes)
	}
}
