package orphan

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/internal/nodefeature"
)

// cached returns a cache that holds one NodeFeature and no Node, as after a truncated list of Nodes.
type cached struct {
	client.Client
	feature nodefeature.NodeFeature
	deleted int
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if f, ok := into.(*nodefeature.NodeFeature); ok {
		*f = c.feature
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
}

func (c *cached) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*nodefeature.NodeFeatureList).Items = []nodefeature.NodeFeature{c.feature}
	return nil
}

func (c *cached) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	c.deleted++
	return nil
}

// server returns a client that gives the same answer for every Node.
type server struct {
	client.Reader
	err error
}

func (s server) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return s.err
}

// TestNothingIsDeletedUnlessTheServerSaysThatTheNodeIsGone: a Node that is missing in the cache is not necessarily deleted.
func TestNothingIsDeletedUnlessTheServerSaysThatTheNodeIsGone(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n")
	for name, tc := range map[string]struct {
		server  error
		want    int
		wantErr bool
	}{
		"TheNodeIsThere": {nil, 0, false},
		"NobodyKnows":    {errors.New("away"), 0, true},
		"TheNodeIsGone":  {gone, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			cache := &cached{feature: nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
				Namespace: "own", Name: "n", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"},
				Annotations:       map[string]string{nfdv1alpha1.WorkerVersionAnnotation: "v1"},
				CreationTimestamp: metav1.NewTime(clock.Now().Add(-48 * time.Hour)),
			}}}
			r := &Reconciler{
				client: cache, live: server{err: tc.server}, events: record.NewFakeRecorder(1),
				opt:     Options{Interval: time.Hour, Grace: time.Minute, Breaker: budget.NewBreaker(budget.Default, clock), Clock: clock},
				missing: map[client.ObjectKey]time.Time{}, seen: map[client.ObjectKey]string{}, nameless: map[client.ObjectKey]bool{},
			}
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&cache.feature)}
			if _, err := r.Reconcile(t.Context(), request); err != nil || cache.deleted != 0 {
				t.Fatalf("%d deletions within the grace period, %v", cache.deleted, err)
			}
			clock.SetTime(clock.Now().Add(2 * time.Minute))
			_, err := r.Reconcile(t.Context(), request)
			if cache.deleted != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("%d deletions, want %d; %v", cache.deleted, tc.want, err)
			}
		})
	}
}
