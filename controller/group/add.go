// Package group maintains the status of NodeFeatureGroups: the nodes that match. It is the only writer of their status.
package group

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/internal/lru"
	"github.com/assay-project/assay/rules/review"
)

// Options configure the controller.
type Options struct {
	// Definitions are those of the kinds that controllers write.
	Definitions *follow.Definitions
	// Known is the knowledge about the cluster that reviews of groups depend on.
	Known review.Known
	// Nodes are the inputs of rules for each node.
	Nodes *inputs.Nodes
	// NodesChanged delivers an event whenever the features of a node have changed.
	NodesChanged <-chan event.GenericEvent
}

// Add registers the controller. It watches groups in all namespaces and the inputs of rules for all nodes.
func Add(mgr ctrl.Manager, opt Options) error {
	opt.Known.Rules.DefaultScope = "" // scopes only apply to rules
	r := &Reconciler{
		client: mgr.GetClient(), opt: opt, programs: lru.New[*program](maxCompiled),
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("group").
		For(&nfdv1alpha1.NodeFeatureGroup{}, builder.WithPredicates(informer.SpecChanged)).
		WatchesRawSource(source.Channel(opt.NodesChanged, gathered{r: r})).
		Complete(follow.Gate(opt.Definitions, definition.Groups, r))
}

// gathered enqueues all groups after a delay.
type gathered struct {
	handler.Funcs
	r *Reconciler
}

// Generic implements handler.EventHandler.
func (g gathered) Generic(ctx context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var list nfdv1alpha1.NodeFeatureGroupList
	if err := g.r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // only before the cache has started; every group is enqueued then anyway
	}
	for i := range list.Items {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, delay)
	}
}
