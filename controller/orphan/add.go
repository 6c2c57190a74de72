// Package orphan deletes NodeFeatures and NodeResourceTopologies of deleted Nodes.
package orphan

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/internal/nodefeature"
)

// Options configure the controller.
type Options struct {
	// Interval is how often objects without a Node are checked again; 0 disables deletion.
	Interval time.Duration
	// Grace is how long a NodeFeature is kept after its Node is deleted.
	Grace   time.Duration
	Breaker *budget.Breaker
	Clock   clock.PassiveClock
}

// Add registers the controller. It watches NodeFeatures, and deletions of Nodes. Describing returns the keys of the NodeFeatures that
// name a Node.
func Add(mgr ctrl.Manager, describing func(node string) ([]client.ObjectKey, error), opt Options) error {
	if opt.Interval <= 0 {
		return nil
	}
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		events:   mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		opt:      opt,
		missing:  map[client.ObjectKey]time.Time{},
		seen:     map[client.ObjectKey]string{},
		nameless: map[client.ObjectKey]bool{},
	}
	comesOrGoes := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*nodefeature.NodeFeature).NodeName() != e.ObjectNew.(*nodefeature.NodeFeature).NodeName()
	}}
	nodes := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("orphan").
		For(&nodefeature.NodeFeature{}, builder.WithPredicates(comesOrGoes)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(requests(describing)), builder.WithPredicates(nodes)).
		Complete(r)
}

// requests returns requests for the NodeFeatures that describe a Node.
func requests(describing func(node string) ([]client.ObjectKey, error)) handler.MapFunc {
	return func(_ context.Context, node client.Object) []reconcile.Request {
		list, err := describing(node.GetName())
		if err != nil {
			return nil
		}
		out := make([]reconcile.Request, len(list))
		for i, key := range list {
			out[i].NamespacedName = key
		}
		return out
	}
}
