// Package baseline reports in the status of NodeBaselines which nodes deviate. It is the only writer of their status.
package baseline

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/review"
)

// Options configure the controller.
type Options struct {
	// Definitions are those of the kinds that controllers write.
	Definitions *follow.Definitions
	// Known is the knowledge about the cluster that reviews of baselines depend on.
	Known review.Known
	// Nodes are the inputs of rules for each node.
	Nodes *inputs.Nodes
	// NodesChanged delivers an event whenever the state of a node has changed.
	NodesChanged <-chan event.GenericEvent
	Clock        clock.PassiveClock
}

// Add registers the controller. It watches NodeBaselines, the inputs of rules for all nodes, and Nodes for whether their features are those
// of the current boot.
func Add(mgr ctrl.Manager, opt Options) error {
	opt.Known.Rules.DefaultScope = "" // scopes only apply to rules
	r := &Reconciler{
		client: mgr.GetClient(), opt: opt, compiled: map[string]*compiled{},
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	changed := &changes{client: mgr.GetClient()}
	r.fleet = &changed.nodes
	return ctrl.NewControllerManagedBy(mgr).
		Named("baseline").
		For(&assayv1alpha1.NodeBaseline{}, builder.WithPredicates(informer.SpecChanged)).
		Watches(&assayv1alpha1.NodeBaseline{}, handler.Funcs{DeleteFunc: changed.deleted}).
		Watches(&corev1.Node{}, handler.Funcs{UpdateFunc: changed.updated}).
		WatchesRawSource(source.Channel(opt.NodesChanged, handler.Funcs{GenericFunc: changed.generic})).
		Complete(follow.Gate(opt.Definitions, definition.Baselines, r))
}

const (
	// delay is how long changes of nodes are batched: an upgrade changes one node after the other, and each pass evaluates all nodes.
	delay = 5 * time.Second
	// delayNodes is the number of Nodes in the cluster for which delay is added once more, up to maxDelay, as for NodeShapes.
	delayNodes = 1000
	maxDelay   = time.Minute
)

// changes enqueues all baselines after a delay.
type changes struct {
	client client.Client
	nodes  atomic.Int64 // of the last pass
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (c *changes) generic(ctx context.Context, _ event.GenericEvent, q queue) { c.enqueue(ctx, q) }

// deleted is called when a baseline is deleted: others can have room now.
func (c *changes) deleted(ctx context.Context, _ event.DeleteEvent, q queue) { c.enqueue(ctx, q) }

// updated is called when a Node has changed. Most updates are heartbeats. Levels read labels, also those that no NodeFeature gives.
func (c *changes) updated(ctx context.Context, e event.UpdateEvent, q queue) {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	if before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID || baseline.Complete(before) != baseline.Complete(after) ||
		!maps.Equal(before.Labels, after.Labels) {
		c.enqueue(ctx, q)
	}
}

func (c *changes) enqueue(ctx context.Context, q queue) {
	var list assayv1alpha1.NodeBaselineList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // only before the cache has started; every baseline is enqueued then anyway
	}
	wait := min(maxDelay, delay*time.Duration(1+c.nodes.Load()/delayNodes))
	for i := range list.Items {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, wait)
	}
}
