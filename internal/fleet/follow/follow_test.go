package follow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/facts"
)

const (
	own   = "assay-system"
	grace = 10 * time.Minute
)

// following is a Follower that runs, and is told of events by the test.
type following struct {
	*Follower
	t        *testing.T
	clock    *clocktesting.FakeClock
	handlers map[string]toolscache.ResourceEventHandler
}

func follows(t *testing.T, grace time.Duration) *following {
	t.Helper()
	f := &following{t: t, clock: clocktesting.NewFakeClock(time.Unix(1700000000, 0)), handlers: map[string]toolscache.ResourceEventHandler{}}
	f.Follower = New(index.New(), Options{Gather: nodefeature.Gather{Namespace: own}, Grace: grace, Clock: f.clock})
	for object, handler := range f.watches() {
		f.handlers[fmt.Sprintf("%T", object)] = handler
	}
	f.started = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *following) add(o any) { f.handlers[fmt.Sprintf("%T", o)].OnAdd(o, false) }

func (f *following) remove(o any) { f.handlers[fmt.Sprintf("%T", o)].OnDelete(o) }

// has checks whether it is known that the node n1 has a feature.
func (f *following) has(want bool) {
	f.t.Helper()
	in, _, _ := f.view.Input("n1")
	if got := in.Facts.Feature("cpu.cpuid") != nil; got != want {
		f.t.Errorf("n1 has it: %t, want %t", got, want)
	}
}

// pass lets time pass, once something waits for that.
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

// loses waits until what was known is forgotten.
func (f *following) loses() {
	f.t.Helper()
	testkit.Eventually(f.t, "the feature is forgotten", func(context.Context) error {
		in, _, _ := f.view.Input("n1")
		if in.Facts.Feature("cpu.cpuid") != nil {
			return errors.New("it is still there")
		}
		return nil
	})
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

// TestKeepsWhatAWorkerPublished: while the controller keeps the labels of a node whose NodeFeature has vanished, pods that ask for
// what they say are placed there.
func TestKeepsWhatAWorkerPublished(t *testing.T) {
	f := follows(t, grace)
	f.add(n1())
	f.add(published(own, "n1"))
	f.remove(published(own, "n1"))
	f.has(true)
	f.pass(grace - time.Minute)
	f.has(true)

	f.add(published(own, "n1")) // the worker is back, and goes once more
	f.remove(published(own, "n1"))
	f.pass(grace - time.Minute)
	f.has(true)
	f.pass(time.Minute)
	f.loses()
}

func TestKeepsAnObjectThatIsBeingDeleted(t *testing.T) {
	f := follows(t, grace)
	f.add(n1())
	f.add(published(own, "n1"))
	going := published(own, "n1")
	going.DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
	f.add(going)
	f.has(true)
	f.remove(going)
	f.has(true)
	f.pass(grace)
	f.loses()
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
			f.add(n1())
			f.add(test.feature)
			f.has(true)
			f.remove(test.feature)
			f.has(false)
		})
	}
}

// TestForgetsWithTheNode: what a node of the same name is, is not known.
func TestForgetsWithTheNode(t *testing.T) {
	f := follows(t, grace)
	f.add(n1())
	f.add(published(own, "n1"))
	f.remove(published(own, "n1"))
	f.remove(n1())
	f.add(n1())
	f.has(false)
}
