package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/testkit"
)

// setClock is a clock for the times of feature sets, and the option that has a controller use it.
func setClock() (*clocktesting.FakeClock, func(*controller.Config)) {
	clock := clocktesting.NewFakeClock(time.Now())
	return clock, func(c *controller.Config) { c.FeatureSets.Clock = clock }
}

// asked waits until the annotation of a NodeFeature asks for these sets.
func (w *world) asked(f *nfdv1alpha1.NodeFeature, sets ...string) {
	w.Helper()
	becomes(w, f, fmt.Sprintf("annotation that asks for %q", sets), func(f *nfdv1alpha1.NodeFeature) bool {
		return f.Annotations[assayv1alpha1.MissingFeatureSetsAnnotation] == strings.Join(sets, ",")
	})
}

// becomesAfter waits for a set to meet a condition, while time passes. A set that does not exist is nil.
func (w *world) becomesAfter(clock *clocktesting.FakeClock, step time.Duration, set *assayv1alpha1.NodeFeatureSet, what string, met func(*assayv1alpha1.NodeFeatureSet) bool) {
	w.Helper()
	testkit.Eventually(w, what, func(ctx context.Context) error {
		clock.Step(step)
		now := &assayv1alpha1.NodeFeatureSet{}
		err := w.Get(ctx, client.ObjectKeyFromObject(set), now)
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		if err == nil && !met(now) {
			err = fmt.Errorf("it is %+v", now)
		}
		return err
	})
}

func counted(nodes int32) func(*assayv1alpha1.NodeFeatureSet) bool {
	return func(s *assayv1alpha1.NodeFeatureSet) bool {
		return s != nil && s.Status.Nodes != nil && *s.Status.Nodes == nodes
	}
}

func gone(s *assayv1alpha1.NodeFeatureSet) bool { return s == nil }

func TestTheControllerAnnouncesThatItReadsSets(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	w.start(useClock)
	marker := &corev1.ConfigMap{}
	testkit.Eventually(t, "the marker", func(ctx context.Context) error {
		return w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: assayv1alpha1.FeatureSetMarker}, marker)
	})
	if got := marker.Annotations[assayv1alpha1.FeatureSetFormatAnnotation]; got != featureset.Version {
		t.Errorf("format %q, want %q", got, featureset.Version)
	}
	// An older controller left a marker without this annotation.
	delete(marker.Annotations, assayv1alpha1.EncodedInstancesAnnotation)
	if err := w.Update(w.Context(), marker); err != nil {
		t.Fatal(err)
	}
	becomes(w, marker, "encoded instances announced", func(marker *corev1.ConfigMap) bool {
		clock.Step(time.Second)
		return marker.Annotations[assayv1alpha1.EncodedInstancesAnnotation] == assayv1alpha1.EncodedInstancesEnabled
	})
}

// TestTheControllerListsTheSetsInUse: workers of new nodes name these sets without reading them.
func TestTheControllerListsTheSetsInUse(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	stays, goes, junk := w.set(M{"stays": "1"}), w.set(M{"goes": "1"}), w.set(M{"junk": "1"})
	for _, s := range []*assayv1alpha1.NodeFeatureSet{stays, goes, junk} {
		testkit.Create(w, w, s)
	}
	w.publishSets(w.namespace, "n1", stays)
	f := w.publishSets(w.namespace, "n2", goes)
	m := w.start(useClock)
	lists := func(names ...string) {
		t.Helper()
		slices.Sort(names)
		testkit.Eventually(t, fmt.Sprintf("marker that lists %q", names), func(ctx context.Context) error {
			clock.Step(time.Second)
			marker := &corev1.ConfigMap{}
			err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: assayv1alpha1.FeatureSetMarker}, marker)
			if got := marker.Annotations[assayv1alpha1.KnownFeatureSetsAnnotation]; err == nil && got != strings.Join(names, ",") {
				err = fmt.Errorf("it lists %q", got)
			}
			return err
		})
	}
	lists(stays.Name, goes.Name)
	w.becomesAfter(clock, time.Second, goes, "counted set", counted(1))
	w.becomesAfter(clock, time.Second, stays, "counted set", counted(1))
	if err := w.Delete(w.Context(), f); err != nil {
		t.Fatal(err)
	}
	lists(stays.Name) // the other one will be deleted
	m.stop()
	w.start(useClock)
	late := w.set(M{"late": "1"})
	testkit.Create(w, w, late)
	w.publishSets(w.namespace, "n2", late)
	lists(stays.Name, late.Name)
}

// TestWorkersAreAskedForMissingSets has a set that was never created, and one that is deleted by hand while NodeFeatures are complete.
func TestWorkersAreAskedForMissingSets(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	there, late := w.set(M{"there": "1"}), w.set(M{"late": "1"})
	testkit.Create(w, w, there)
	w.node("n1")
	w.node("n2")
	complete, waits := w.publishSets(w.namespace, "n1", there), w.publishSets(w.namespace, "n2", late)
	other := there.DeepCopy()
	other.Name = strings.Replace(there.Name, "-v1-", "-v2-", 1)
	newer := w.publishSets(w.namespace, "n3", other)
	w.start()
	w.labels("n1", M{"there": "1"})
	w.asked(waits, late.Name)
	w.event("n2", "FeatureSetsMissing", late.Name)
	testkit.Create(w, w, late)
	w.asked(waits)
	w.labels("n2", M{"late": "1"})

	if err := w.Delete(w.Context(), there.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	w.asked(complete, there.Name)
	w.labels("n1", M{"there": "1"})
	testkit.Create(w, w, w.set(M{"there": "1"}))
	w.asked(complete)
	w.asked(newer) // sets of other versions are not the business of this controller
}

// TestFewWorkersAreAskedForOneSet: all nodes of one kind name the same set, and one of them can create it.
func TestFewWorkersAreAskedForOneSet(t *testing.T) {
	w := newWorld(t)
	s := w.set(M{"a": "1"})
	const nodes, first = 12, 3
	for i := range nodes {
		w.publishSets(w.namespace, fmt.Sprintf("n%02d", i), s)
	}
	clock, useClock := setClock()
	w.start(useClock)
	asked := func(ctx context.Context) (n int, err error) {
		var list nfdv1alpha1.NodeFeatureList
		err = w.List(ctx, &list, client.InNamespace(w.namespace))
		for i := range list.Items {
			if list.Items[i].Annotations[assayv1alpha1.MissingFeatureSetsAnnotation] == s.Name {
				n++
			}
		}
		return n, err
	}
	for _, want := range []int{first, 2 * first, nodes} {
		testkit.Eventually(t, fmt.Sprintf("%d workers that are asked", want), func(ctx context.Context) error {
			n, err := asked(ctx)
			if n < want && err == nil {
				clock.Step(time.Second)
				err = fmt.Errorf("%d are asked", n)
			}
			return err
		})
		if n, err := asked(t.Context()); err != nil || n > 2*want {
			t.Errorf("%d workers are asked, want %d; %v", n, want, err)
		}
	}
	testkit.Create(w, w, s)
	testkit.Eventually(t, "no worker that is asked", func(ctx context.Context) error {
		clock.Step(time.Second)
		n, err := asked(ctx)
		if n > 0 && err == nil {
			err = fmt.Errorf("%d are asked", n)
		}
		return err
	})
}

func TestAWrongSetIsDeletedAndItsNodeIsNamed(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	right, wrong := w.set(M{"right": "1"}), w.set(M{"wrong": "1"})
	wrong.Name, wrong.Labels = right.Name, map[string]string{assayv1alpha1.CreatedByNodeLabel: "thief"}
	testkit.Create(w, w, wrong)
	w.node("n1")
	f := w.publishSets(w.namespace, "n1", right)
	w.start()
	w.event(right.Name, "WrongFeatureSet", `node "thief" created it`)
	w.asked(f, right.Name)
	testkit.Create(w, w, right)
	w.labels("n1", M{"right": "1", "wrong": ""})
	// It is taken once more: the worker is asked to publish the feature in its NodeFeature.
	if err := w.Delete(w.Context(), right); err != nil {
		t.Fatal(err)
	}
	again := w.set(M{"wrong": "2"})
	again.Name = right.Name
	testkit.Create(w, w, again)
	w.asked(f, "!"+right.Name)
	w.labels("n1", M{"right": "1"})
}

// TestLabelsStayWhileSetsAreMissingAfterARestart: a controller that has never seen the sets of a node does not know what it is.
func TestLabelsStayWhileSetsAreMissingAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	s := w.set(M{"a": "1"})
	testkit.Create(w, w, s)
	w.node("n1")
	w.publishSets(w.namespace, "n1", s)
	m := w.start()
	w.labels("n1", M{"a": "1"})
	m.stop()
	history := w.record("n1")
	if err := w.Delete(w.Context(), s.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	w.start(func(c *controller.Config) { c.RemovalGracePeriod = time.Millisecond }) // what has vanished does not count any more
	w.event("n1", "FeatureSetsMissing")
	w.node("n2")
	w.publish(w.namespace, "n2", "n2", M{"b": "1"}, nil)
	w.labels("n2", M{"b": "1"})
	testkit.Create(w, w, w.set(M{"a": "1"}))
	w.labels("n1", M{"a": "1"})
	history.always(w, feature+"a")
}

func TestSetsShowTheirNodes(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	s := w.set(M{"a": "1", "b": "2"})
	testkit.Create(w, w, s)
	f := w.publishSets(w.namespace, "n1", s)
	w.publishSets(w.namespace, "n2", s)
	w.start(useClock)
	w.becomesAfter(clock, time.Second, s, "set of two nodes", counted(2))
	testkit.Eventually(t, "its status", func(ctx context.Context) error { return w.Get(ctx, client.ObjectKeyFromObject(s), s) })
	if got := s.Status; got.Feature != "test.attr" || *got.Elements != 2 || *got.Bytes < 20 {
		t.Errorf("status %+v", got)
	}
	if err := w.Delete(w.Context(), f); err != nil {
		t.Fatal(err)
	}
	w.becomesAfter(clock, time.Second, s, "set of one node", counted(1))
}

// TestUnusedSetsAreDeleted: a set that no NodeFeature names is kept for a day, over restarts of the controller, unless a node returns.
func TestUnusedSetsAreDeleted(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	unused, returns, newer, stray := w.set(M{"unused": "1"}), w.set(M{"returns": "1"}), w.set(M{"newer": "1"}), w.set(M{"stray": "1"})
	newer.Name, stray.Name = strings.Replace(newer.Name, "-v1-", "-v2-", 1), "no-digest"
	testkit.Create(w, w, unused)
	testkit.Create(w, w, returns)
	testkit.Create(w, w, newer)
	testkit.Create(w, w, stray)
	w.publishSets(w.namespace, "n3", newer)
	leaves, away := w.publishSets(w.namespace, "n1", unused), w.publishSets(w.namespace, "n2", returns)
	m := w.start(useClock)
	w.becomesAfter(clock, time.Second, unused, "counted set", counted(1))
	w.becomesAfter(clock, time.Second, returns, "counted set", counted(1))
	for _, f := range []*nfdv1alpha1.NodeFeature{leaves, away} {
		if err := w.Delete(w.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	marked := func(s *assayv1alpha1.NodeFeatureSet) bool {
		return s != nil && s.Annotations[assayv1alpha1.UnusedSinceAnnotation] != ""
	}
	w.becomesAfter(clock, time.Second, unused, "annotation that it is unused", marked)
	w.becomesAfter(clock, time.Second, returns, "annotation that it is unused", marked)
	m.stop()
	w.publishSets(w.namespace, "n2", returns)

	w.start(useClock)
	w.becomesAfter(clock, time.Second, returns, "set in use", func(s *assayv1alpha1.NodeFeatureSet) bool { return s != nil && !marked(s) })
	w.becomesAfter(clock, time.Hour, unused, "unused set to be deleted", gone)
	w.becomesAfter(clock, time.Minute, stray, "set of no known format to be deleted", gone)
	w.becomesAfter(clock, time.Hour, returns, "set in use", counted(1))
	w.becomesAfter(clock, 0, newer, "set of a newer format", func(s *assayv1alpha1.NodeFeatureSet) bool { return s != nil && !marked(s) })
}

// TestJunkIsDeletedEarly has a client create sets that no NodeFeature names.
func TestJunkIsDeletedEarly(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	const junk = 300
	for i := range junk {
		testkit.Create(w, w, w.set(M{"junk": fmt.Sprint(i)}))
	}
	used := w.set(M{"used": "1"})
	testkit.Create(w, w, used)
	w.publishSets(w.namespace, "n1", used)
	w.start(useClock)
	w.becomesAfter(clock, time.Second, used, "counted set", counted(1))
	testkit.Eventually(t, "the junk to be deleted", func(ctx context.Context) error {
		clock.Step(time.Minute)
		var list assayv1alpha1.NodeFeatureSetList
		err := w.List(ctx, &list, client.InNamespace(w.namespace))
		if n := len(list.Items); err == nil && n != 1 {
			err = fmt.Errorf("%d sets are left", n)
		}
		return err
	})
	w.becomesAfter(clock, 0, used, "set in use", counted(1))
}

// TestJunkBeyondTheBudgetOfMemory has a client with a stolen token create more junk than a controller keeps in memory, as ten thousand
// sets of the usual size would be. Nodes keep their labels, and one that names a set which was dropped from memory gets its labels too.
func TestJunkBeyondTheBudgetOfMemory(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	clock, useClock := setClock()
	used := w.set(M{"used": "1"})
	testkit.Create(w, w, used)
	w.node("n1")
	w.node("n2")
	w.publishSets(w.namespace, "n1", used)
	named := w.set(M{"named": "1"})
	testkit.Create(w, w, named) // the oldest is dropped first
	const bytes = 200 << 10
	for i := range featuresets.MaxUnusedBytes/bytes + 4 {
		testkit.Create(w, w, w.set(M{"number": fmt.Sprint(i), "x": strings.Repeat("x", bytes)}))
	}
	w.start(useClock)
	w.labels("n1", M{"used": "1"})
	w.publishSets(w.namespace, "n2", named)
	w.labels("n2", M{"named": "1"})
	testkit.Eventually(t, "the other junk to be deleted", func(ctx context.Context) error {
		clock.Step(time.Minute)
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK.GroupVersion().WithKind("NodeFeatureSetList"))
		err := w.List(ctx, &list, client.InNamespace(w.namespace))
		if n := len(list.Items); err == nil && n != 2 {
			err = fmt.Errorf("%d sets are left", n)
		}
		return err
	})
	w.labels("n1", M{"used": "1"})
	w.labels("n2", M{"named": "1"})
}

// TestJunkIsFoundWithoutAnyNodeThatShares is about sets in a cluster whose NodeFeatures name none.
func TestJunkIsFoundWithoutAnyNodeThatShares(t *testing.T) {
	w := newWorld(t)
	clock, useClock := setClock()
	s := w.set(M{"junk": "1"})
	testkit.Create(w, w, s)
	w.start(useClock)
	w.becomesAfter(clock, time.Minute, s, "junk to be deleted", gone)
}
