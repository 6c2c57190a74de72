package controller_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// set returns a NodeFeatureSet with test.attr attributes that has not been created yet.
func (w *world) set(attributes map[string]string) *assayv1alpha1.NodeFeatureSet {
	w.Helper()
	features := nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: attributes}},
	}
	name, err := featureset.Name(&features)
	if err != nil {
		w.Fatal(err)
	}
	return &assayv1alpha1.NodeFeatureSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: assayv1alpha1.NodeFeatureSetSpec{Features: features},
	}
}

// publishSets creates a NodeFeature that references sets.
func (w *world) publishSets(namespace, node string, sets ...*assayv1alpha1.NodeFeatureSet) *nfdv1alpha1.NodeFeature {
	w.Helper()
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}}}
	for _, s := range sets {
		f.Spec.FeatureSets = append(f.Spec.FeatureSets, s.Name)
	}
	testkit.Create(w, w, f)
	return f
}

func TestFeaturesOfSetsCount(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	there, late := w.set(M{"there": "1"}), w.set(M{"late": "1"})
	testkit.Create(w, w, there)
	w.node("n1")
	w.node("n2")
	w.node("n3")
	w.publishSets(w.namespace, "n1", there)
	w.publishSets(w.namespace, "n2", late)
	w.publishSets(testkit.Namespace(t, w), "n3", there)
	w.start()
	w.labels("n1", M{"there": "1"})

	testkit.Create(w, w, late)
	w.labels("n2", M{"late": "1"})
	w.labels("n3", M{"there": ""}) // only sets in Assay's own namespace count
}

// TestALabelStaysWhileASetIsMissing deletes a set manually while the worker keeps writing.
func TestALabelStaysWhileASetIsMissing(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	s := w.set(M{"a": "1"})
	testkit.Create(w, w, s)
	w.node("n1")
	f := w.publishSets(w.namespace, "n1", s)
	w.start()
	w.labels("n1", M{"a": "1"})
	history := w.record("n1")

	if err := w.Delete(w.Context(), s); err != nil {
		t.Fatal(err)
	}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Labels = map[string]string{"written": "meanwhile"} })
	// The second node shows that the controller has processed the change.
	w.node("n2")
	w.publish(w.namespace, "n2", "n2", M{"b": "1"}, nil)
	w.labels("n2", M{"b": "1"})
	w.labels("n1", M{"a": "1", "written": ""})

	again := w.set(M{"a": "1"})
	testkit.Create(w, w, again)
	w.labels("n1", M{"a": "1", "written": "meanwhile"})
	history.always(w, feature+"a")
}

// TestASetWithFalseContentDoesNotCount: a client that can create sets creates one whose content does not match its name, to change
// the features of the nodes that reference it.
func TestASetWithFalseContentDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	right, wrong := w.set(M{"right": "1"}), w.set(M{"wrong": "1"})
	wrong.Name = right.Name
	if err := w.Create(w.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	w.node("n1")
	w.publishSets(w.namespace, "n1", right)
	w.start()
	w.node("n2")
	w.publish(w.namespace, "n2", "n2", M{"b": "1"}, nil)
	w.labels("n2", M{"b": "1"})
	w.labels("n1", M{"right": "", "wrong": ""})

	testkit.Eventually(t, "the right set in the place of the wrong one", func(ctx context.Context) error {
		if err := w.Delete(ctx, wrong); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := w.Create(ctx, right); err != nil {
			return fmt.Errorf("create it: %w", err)
		}
		return nil
	})
	w.labels("n1", M{"right": "1", "wrong": ""})
}
