package node

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/settings"
)

// definedAs is an API server whose definition of NodeFeatures has this UID; empty: there is none.
type definedAs struct {
	client.Reader
	uid types.UID
}

func (d definedAs) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if d.uid == "" {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if o, ok := into.(*unstructured.Unstructured); ok {
		if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeatures.yaml"], &o.Object); err != nil {
			return err
		}
	}
	into.SetUID(d.uid)
	return nil
}

// definitions returns the definition of NodeFeatures as a process knows it that has just read it.
func definitions(t *testing.T, uid types.UID) *follow.Definitions {
	t.Helper()
	d := follow.New(follow.Options{Live: definedAs{uid: uid}}, definition.Features)
	if err := d.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNodeFeaturesThatWereDeletedWithTheirDefinition: another program deleted the definition of NodeFeatures, and the labels of all publishers
// but the worker went at once. They stay until it is there again, and for the grace period after that, in which publishers publish again; also
// if the controller is restarted meanwhile.
func TestNodeFeaturesThatWereDeletedWithTheirDefinition(t *testing.T) {
	for name, restarts := range map[string]bool{"Running": false, "Restarted": true} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t, func(r *Reconciler) { r.owners.definitions = definitions(t, "1") })
			rule := nfdv1alpha1.Rule{Labels: M{"fabric": "true"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "vendor.attr"}}}
			// becomes changes the definition, which a process learns that runs or starts.
			becomes := func(uid types.UID) {
				if w.r.owners.definitions = definitions(t, uid); restarts {
					w.restart(func(r *Reconciler) { r.owners.definitions = definitions(t, uid) })
					w.rule("r", rule)
				}
			}
			w.rule("r", rule)
			w.publish(link("up"))
			vendor := published("vendor-n", attributes("vendor.attr", M{"fabric": "yes"}))
			w.publish(vendor)
			w.pass()
			w.hasLabels("at first", M{"fabric": "true"})

			becomes("")
			w.unpublish(vendor)
			for range 2 {
				w.pass()
				w.hasLabels("without a definition", M{"fabric": "true"})
				if held := w.holds(hold.Unread); len(held) != 1 {
					t.Errorf("published %+v, want why the label stays", held)
				}
				w.clock.Step(24 * time.Hour)
			}

			becomes("2")
			w.publish(link("up"))
			w.pass()
			w.hasLabels("when there is another definition", M{"fabric": "true"})
			w.clock.Step(settings.DefaultRemovalGracePeriod - time.Second)
			w.pass()
			w.hasLabels("in the grace period", M{"fabric": "true"})
			w.clock.Step(time.Second + time.Millisecond)
			again := w.pass()
			w.clock.Step(again)
			w.pass()
			w.hasLabels("afterwards", M{"fabric": ""})
		})
	}
}

// TestADeletedNodeFeatureIsGoneWhileItsDefinitionIsThere: this is how publishers take back what they have published.
func TestADeletedNodeFeatureIsGoneWhileItsDefinitionIsThere(t *testing.T) {
	w := newPasses(t, func(r *Reconciler) { r.owners.definitions = definitions(t, "1") })
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"fabric": "true"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "vendor.attr"}}})
	w.publish(link("up"))
	vendor := published("vendor-n", attributes("vendor.attr", M{"fabric": "yes"}))
	w.publish(vendor)
	w.pass()
	w.unpublish(vendor)
	w.pass()
	w.hasLabels("its publisher has deleted it", M{"fabric": ""})
}
