package follow

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	own   = "assay-system"
	grace = 10 * time.Minute
)

// following is a Follower with a cache that the test fills.
type following struct {
	*inputstest.Cache
	t     *testing.T
	view  *index.Index
	clock *clocktesting.FakeClock
	marks int
}

func follows(t *testing.T, grace time.Duration) *following {
	t.Helper()
	f := &following{Cache: inputstest.New(), t: t, view: index.New(), clock: clocktesting.NewFakeClock(time.Unix(1700000000, 0))}
	nodes := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: own}, Grace: grace, Clock: f.clock})
	follower := New(f.view, nodes, Options{Leases: own})
	if err := nodes.Watch(t.Context(), f.Cache); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- nodes.Start(ctx) }()
	go func() { done <- errors.Join(follower.Sync(ctx, f.Cache), follower.Run(ctx)) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the view is complete", func(context.Context) error {
		if !f.view.Synced() {
			return errors.New("it is not")
		}
		return nil
	})
	return f
}

// has waits until it is known whether the node n1 has a feature.
func (f *following) has(want bool) {
	f.t.Helper()
	testkit.Eventually(f.t, "the view has followed", func(context.Context) error {
		in, _, _ := f.view.Input("n1")
		if got := in.Facts.Feature("cpu.cpuid") != nil; got != want {
			return errors.New("n1 is what it was")
		}
		return nil
	})
}

// keeps checks that the node n1 has a feature after the last change was processed.
func (f *following) keeps() {
	f.t.Helper()
	n := n1()
	f.marks++
	n.Labels = map[string]string{"mark": strconv.Itoa(f.marks)}
	f.Put(n)
	mark, report := requirements.Annotations(map[string]string{"assay.dev/required-features": `conditions: [{op: eq, args: {values: ["{node.labels.mark}", "` +
		n.Labels["mark"] + `"]}}]`}, field.NewPath("metadata"), rules.Options{})
	if !report.OK() {
		f.t.Fatal(report.Errors.ToAggregate())
	}
	testkit.Eventually(f.t, "the node is processed", func(context.Context) error {
		if f.view.Query(mark, 0).Matching != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	if in, _, _ := f.view.Input("n1"); in.Facts.Feature("cpu.cpuid") == nil {
		f.t.Error("n1 has lost its feature")
	}
}

// pass advances the clock, once something waits for it.
func (f *following) pass(d time.Duration) {
	f.t.Helper()
	testkit.Eventually(f.t, "something waits", func(context.Context) error {
		if !f.clock.HasWaiters() {
			return errors.New("nothing waits")
		}
		return nil
	})
	f.clock.Step(d)
}

func n1() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID("u")}}
}

func published(namespace, name string) *nodefeature.NodeFeature {
	return &nodefeature.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"}},
		Spec: nodefeature.Spec{Features: nodefeature.Features{
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags("AVX")}}, facts.NewInterner()),
		}},
	}
}

// TestKeepsWhatAWorkerPublished: while the controller keeps the labels of a node whose NodeFeature was deleted, pods that require
// the same features can be placed there.
func TestKeepsWhatAWorkerPublished(t *testing.T) {
	f := follows(t, grace)
	f.Put(n1())
	f.Put(published(own, "n1"))
	f.has(true)
	f.Remove(published(own, "n1"))
	f.keeps()
	f.pass(grace - time.Minute)
	f.keeps()

	f.Put(published(own, "n1")) // the worker comes back, and disappears again
	f.keeps()
	f.Remove(published(own, "n1"))
	f.keeps()
	f.pass(grace - time.Minute)
	f.keeps()
	f.pass(time.Minute)
	f.has(false)
}

func TestKeepsAnObjectThatIsBeingDeleted(t *testing.T) {
	f := follows(t, grace)
	f.Put(n1())
	f.Put(published(own, "n1"))
	f.has(true)
	going := published(own, "n1")
	going.DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
	f.Put(going)
	f.keeps()
	f.Remove(going)
	f.keeps()
	f.pass(grace)
	f.has(false)
}

func TestForgetsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		grace   time.Duration
		feature *nodefeature.NodeFeature
	}{
		"WithoutGrace":             {0, published(own, "n1")},
		"WhatOthersPublish":        {grace, published(own, "more-of-n1")},
		"WhatLiesInOtherNamespace": {grace, published("other", "n1")},
	} {
		t.Run(name, func(t *testing.T) {
			f := follows(t, test.grace)
			f.Put(n1())
			f.Put(test.feature)
			f.has(true)
			f.Remove(test.feature)
			f.has(false)
		})
	}
}

// TestForgetsWithTheNode: nothing is known about a new node with the same name.
func TestForgetsWithTheNode(t *testing.T) {
	f := follows(t, grace)
	f.Put(n1())
	f.Put(published(own, "n1"))
	f.has(true)
	f.Remove(published(own, "n1"))
	f.Remove(n1())
	f.has(false)
	again := n1()
	again.UID = "other"
	f.Put(again)
	testkit.Eventually(t, "the node is known", func(context.Context) error {
		if !f.view.Knows("n1") {
			return errors.New("it is not")
		}
		return nil
	})
	f.has(false)
}

// TestAgeIsThatOfTheLeaseOrOfTheNode: the age of facts is the time since the last sign of life of their publisher.
func TestAgeIsThatOfTheLeaseOrOfTheNode(t *testing.T) {
	f := follows(t, grace)
	lost := n1()
	lost.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Unix(1000, 0)}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "n1"}}
	renewed := metav1.NewMicroTime(time.Unix(2000, 0))
	lease.Spec.RenewTime = &renewed
	fresh := &requirements.Requirements{StaleAfter: 60}
	age := func(now int64, want bool) {
		t.Helper()
		testkit.Eventually(t, "the age is known", func(context.Context) error {
			j := f.view.Judge(fresh, now)
			defer j.End()
			if why, _ := j.Check([]byte("n1")); (why == nil) != want {
				return errors.New("it is another one")
			}
			return nil
		})
	}
	f.Put(n1())
	age(9000, true)
	f.Put(lost)
	age(1060, true)
	age(1061, false)
	f.Put(lease)
	age(2060, true)
	age(2061, false)
	f.Remove(lease)
	age(2060, false)
	f.Put(n1())
	age(9000, true)
}
