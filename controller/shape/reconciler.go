package shape

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

const (
	// delay is how long changes of nodes are batched: when a rule changes, all nodes of a shape change one after the other.
	delay = 5 * time.Second
	// forgetAfter is how long a shape without nodes is kept: node groups for quarterly jobs are empty for that long.
	forgetAfter = 90 * 24 * time.Hour
)

// ReasonNodeDiffers is the reason of the Event on a NodeShape that a new node contradicts, and of its condition Contradicted while
// that is True; reasonNodesAgree is the reason while it is False.
const (
	ReasonNodeDiffers = "NodeDiffers"
	reasonNodesAgree  = "NodesAgree"
)

// Reconciler writes one NodeShape. It is the only writer of NodeShapes.
type Reconciler struct {
	client client.Client
	events record.EventRecorder
	opt    Options
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.MatchingFields{byShape: req.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	nodes := r.members(list.Items)
	var obj assayv1alpha1.NodeShape
	err := r.client.Get(ctx, req.NamespacedName, &obj)
	switch {
	case err == nil && obj.DeletionTimestamp != nil:
		return ctrl.Result{}, nil
	case apierrors.IsNotFound(err):
		// An object is created once the outputs of one node are known.
		if !slices.ContainsFunc(nodes, func(m member) bool { return m.ready }) {
			return ctrl.Result{}, nil
		}
		obj = assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: req.Name}}
		if err := r.client.Create(ctx, &obj); err != nil {
			return again(err)
		}
	case err != nil:
		return ctrl.Result{}, err
	}
	now := metav1.NewTime(r.opt.Clock.Now().Truncate(time.Second))
	left := remaining(obj.Status, len(nodes), now.Time)
	if left <= 0 {
		return ctrl.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, &obj, client.Preconditions{UID: &obj.UID}))
	}
	status, contradictions := decide(obj.Status, nodes, now)
	if len(list.Items) > 0 {
		_, status.Key = keyOf(list.Items[0].Labels, r.opt.Labels)
	}
	if err := r.write(ctx, &obj, status, contradictions); err != nil {
		return again(err)
	}
	return ctrl.Result{RequeueAfter: left}, nil
}

// again repeats a pass that read a cache which is behind the last write.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	return ctrl.Result{}, err
}

// members returns what the decision reads of Nodes, sorted by recentFirst.
func (r *Reconciler) members(nodes []corev1.Node) []member {
	out := make([]member, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		out[i] = member{node: n, name: n.Name, uid: n.UID, created: n.CreationTimestamp.Time, ready: ready(n)}
	}
	recentFirst(out)
	for i := range out[:min(len(out), window)] {
		if out[i].ready {
			out[i].given = given(r.opt.Policy.Given(plan.StateOf(out[i].node)))
		}
	}
	return out
}

// ready reports whether the outputs of all rules have been applied to a Node. Those of a node are too that keeps a label of its pool that
// it does not meet: it contradicts the shape.
func ready(n *corev1.Node) bool {
	c := plan.StateOf(n).Ready()
	return c != nil && (c.Status == corev1.ConditionTrue || c.Reason == assayv1alpha1.ReasonLabelsUnmet) && n.DeletionTimestamp == nil
}

// remaining returns how long a shape is kept if nothing changes, at most forgetAfter; not positive if it has to be deleted.
func remaining(s assayv1alpha1.NodeShapeStatus, nodes int, now time.Time) time.Duration {
	if nodes > 0 || s.LastSeen == nil || ptr.Deref(s.Nodes, 0) > 0 {
		return forgetAfter
	}
	return min(forgetAfter, s.LastSeen.Add(forgetAfter).Sub(now))
}

// write updates the status if it has changed, and reports contradictions.
func (r *Reconciler) write(ctx context.Context, obj *assayv1alpha1.NodeShape, status assayv1alpha1.NodeShapeStatus, contradictions []string) error {
	if equality.Semantic.DeepEqual(obj.Status, status) {
		return nil
	}
	before := obj.DeepCopy()
	obj.Status = status
	if err := r.client.Status().Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, message := range contradictions {
		r.events.Event(obj, corev1.EventTypeWarning, ReasonNodeDiffers, message)
	}
	return nil
}
