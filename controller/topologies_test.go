package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
)

// TestTopologiesOfOthersAreCollectedOnRequest: an object that Node Feature Discovery's updater has left behind goes after its Node, and one
// whose Node may be about to join stays.
func TestTopologiesOfOthersAreCollectedOnRequest(t *testing.T) {
	w := newWorld(t)
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.TopologyCRD(), &definition.Object); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, w, definition)
	topology := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"zones": []any{}}}
		object.SetGroupVersionKind(v1alpha2.NodeResourceTopologyGVK)
		object.SetName(name)
		return object
	}
	names := []string{"stays", "gone", "to-come"}
	for _, name := range names {
		testkit.Eventually(t, "the kind is served", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(w.Create(ctx, topology(name)))
		})
	}
	w.node("stays")
	gone := w.node("gone")
	quick := func(c *controller.Config) { c.GcInterval, c.GcGracePeriod = 10*time.Second, 500*time.Millisecond }
	looked := func(m *manager) func(context.Context) error {
		return func(context.Context) error {
			if n := len(m.requests("GET", "/noderesourcetopologies")); n < 2 { // the first look is complete
				return fmt.Errorf("%d looks", n)
			}
			return nil
		}
	}
	m := w.start(quick, func(c *controller.Config) { c.GcTopologies = true })
	testkit.Eventually(t, "a look at all topologies", looked(m))
	if err := w.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "removal of the topology of the deleted node", func(ctx context.Context) error {
		err := w.Get(ctx, client.ObjectKey{Name: "gone"}, topology("gone"))
		if err == nil {
			err = errors.New("still there")
		}
		return client.IgnoreNotFound(err)
	})
	for _, name := range []string{"stays", "to-come"} {
		if err := w.Get(t.Context(), client.ObjectKey{Name: name}, topology(name)); err != nil {
			t.Errorf("topology %s: %v", name, err)
		}
	}
}
