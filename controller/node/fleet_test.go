package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counter counts lists of Nodes.
type counter struct {
	client.Reader
	lists int
	err   error
}

func (c *counter) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	for _, name := range []string{"a", "b", "c"} {
		into.(*corev1.NodeList).Items = append(into.(*corev1.NodeList).Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return c.err
}

func TestNodesAreCountedOnceASecond(t *testing.T) {
	clock, nodes := clocktesting.NewFakePassiveClock(time.Now()), &counter{}
	f := &fleet{cache: informers{client: nodes}, clock: clock}
	for _, step := range []struct {
		after time.Duration
		lists int
	}{{0, 1}, {0, 1}, {countAge - 1, 1}, {1, 2}, {countAge, 3}} {
		clock.SetTime(clock.Now().Add(step.after))
		if got := f.size(t.Context()); got != 3 || nodes.lists != step.lists {
			t.Errorf("%d nodes after %d lists, want 3 after %d", got, nodes.lists, step.lists)
		}
	}
	nodes.err = errors.New("not synced")
	clock.SetTime(clock.Now().Add(countAge))
	for range 2 {
		if got := f.size(t.Context()); got != 0 {
			t.Errorf("%d nodes although they cannot be counted", got)
		}
	}
	if nodes.lists != 5 {
		t.Errorf("%d lists, want 5: nothing is remembered of a failure", nodes.lists)
	}
}
