// Package shape keeps NodeShapes: what the rules give to the nodes of one node group and instance type.
package shape

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/plan"
)

// Options configure the controller.
type Options struct {
	// Definitions are those of the kinds that controllers write.
	Definitions *follow.Definitions
	// Labels are the names of the labels that make a shape; none disables the controller.
	Labels []string
	// Policy says which outputs on a Node are of rules.
	Policy plan.Policy
	Clock  clock.PassiveClock
}

// byShape is the name of the index of Nodes by the name of their shape.
const byShape = "shape"

// Add registers the controller. It watches Nodes, and NodeShapes that are created or deleted.
func Add(mgr ctrl.Manager, opt Options) error {
	r := &Reconciler{
		client: mgr.GetClient(), cache: mgr.GetCache(), opt: opt,
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	nodes, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if err := nodes.AddIndexers(toolscache.Indexers{byShape: r.shapeOf}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("shape").
		For(&assayv1alpha1.NodeShape{}, builder.WithPredicates(informer.SpecChanged)).
		Watches(&corev1.Node{}, &settled{labels: opt.Labels}).
		Complete(follow.Gate(opt.Definitions, definition.Shapes, r))
}

// shapeOf returns the name of the shape of a Node, if it has one, for the index.
func (r *Reconciler) shapeOf(node any) ([]string, error) {
	if name, _ := keyOf(node.(*corev1.Node).Labels, r.opt.Labels); name != "" {
		return []string{name}, nil
	}
	return nil, nil
}

// settled enqueues the shapes of a node after a delay.
type settled struct {
	labels []string
	nodes  atomic.Int64 // in the cluster
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// delay returns how long changes are batched.
func (s *settled) delay() time.Duration {
	return min(maxDelay, delay*time.Duration(1+s.nodes.Load()/delayNodes))
}

func (s *settled) enqueue(q queue, nodes ...client.Object) {
	for _, n := range nodes {
		if name, _ := keyOf(n.GetLabels(), s.labels); name != "" {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, s.delay())
		}
	}
}

// Create implements handler.EventHandler.
func (s *settled) Create(_ context.Context, e event.CreateEvent, q queue) {
	s.nodes.Add(1)
	s.enqueue(q, e.Object)
}

// Update implements handler.EventHandler. Most updates of Nodes are heartbeats.
func (s *settled) Update(_ context.Context, e event.UpdateEvent, q queue) {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	if before.UID != after.UID || ready(before) != ready(after) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) {
		s.enqueue(q, before, after)
	}
}

// Delete implements handler.EventHandler.
func (s *settled) Delete(_ context.Context, e event.DeleteEvent, q queue) {
	s.nodes.Add(-1)
	s.enqueue(q, e.Object)
}

// Generic implements handler.EventHandler.
func (*settled) Generic(context.Context, event.GenericEvent, queue) {}

var _ handler.EventHandler = &settled{}
