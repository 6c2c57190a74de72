package shape

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/rules/plan"
)

const (
	// delay is how long changes of nodes are batched: when a rule changes, all nodes of a shape change one after the other.
	delay = 5 * time.Second
	// delayNodes is the number of Nodes in the cluster for which delay is added once more, up to maxDelay. A pass reads all nodes of a
	// shape, and while all nodes change, passes over all shapes were a third of the CPU time of the controller.
	delayNodes = 1000
	maxDelay   = time.Minute
	// forgetAfter is how long a shape without nodes is kept: node groups for quarterly jobs are empty for that long.
	forgetAfter = 90 * 24 * time.Hour
	// forgetOneAfter is how long a shape is kept that only one node ever had: a kubelet can give its Node any label of a node group, one
	// after the other.
	forgetOneAfter = 24 * time.Hour
	// maxEmpty is the maximum number of shapes without nodes. Each takes up to 16 KiB of etcd and of the memory of the controller, and fleets
	// have a few dozen node groups.
	maxEmpty = 500
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
	cache  cache.Informers
	events record.EventRecorder
	opt    Options
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	names, err := nodecache.NamesBy(ctx, r.cache, byShape, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	nodes, key := r.members(req.Name, names, func(name string) *corev1.Node {
		return nodecache.Get(ctx, r.client, name) // the deletion of a Node enqueues its shape again
	})
	var obj assayv1alpha1.NodeShape
	err = r.client.Get(ctx, req.NamespacedName, &obj)
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
	if len(nodes) > 0 {
		status.Key = key
	}
	if err := r.write(ctx, &obj, status, contradictions); err != nil {
		return again(err)
	}
	if len(nodes) == 0 {
		if err := r.trim(ctx); err != nil {
			return ctrl.Result{}, err
		}
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

// members returns what the decision reads of the Nodes of a shape, sorted by recentFirst, and its key. Names are those of the index, which
// can have changed since. Read returns nil for a Node that does not exist. Nodes are read one at a time: those of a large shape take a lot of memory.
func (r *Reconciler) members(shape string, names []string, read func(name string) *corev1.Node) (out []member, key map[string]string) {
	out = make([]member, 0, len(names))
	for _, name := range names {
		n := read(name)
		if n == nil {
			continue
		}
		if of, k := keyOf(n.Labels, r.opt.Labels); of == shape {
			out, key = append(out, member{name: n.Name, uid: n.UID, created: n.CreationTimestamp.Time, ready: ready(n)}), k
		}
	}
	recentFirst(out)
	for i := 0; i < min(len(out), window) && out[i].ready; i++ {
		if n := read(out[i].name); n != nil && n.UID == out[i].uid {
			out[i].given = given(r.opt.Policy.Given(plan.StateOf(n)))
		} else { // deleted meanwhile
			out = slices.Delete(out, i, i+1)
			i--
		}
	}
	return out, key
}

// ready reports whether the outputs of all rules have been applied to a Node. Those of a node are too that keeps a label of its pool that
// it does not meet: it contradicts the shape.
func ready(n *corev1.Node) bool {
	c := plan.StateOf(n).Ready()
	return c != nil && (c.Status == corev1.ConditionTrue || c.Reason == assayv1alpha1.ReasonLabelsUnmet) && n.DeletionTimestamp == nil
}

// remaining returns how long a shape is kept if nothing changes, at most forgetAfter; not positive if it has to be deleted.
func remaining(s assayv1alpha1.NodeShapeStatus, nodes int, now time.Time) time.Duration {
	limit := forgetAfter
	if s.OnlyNode != "" {
		limit = forgetOneAfter
	}
	if nodes > 0 || s.LastSeen == nil || ptr.Deref(s.Nodes, 0) > 0 {
		return limit
	}
	return min(limit, s.LastSeen.Add(limit).Sub(now))
}

// trim deletes shapes without nodes if there are too many of them.
func (r *Reconciler) trim(ctx context.Context) error {
	var list assayv1alpha1.NodeShapeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for _, s := range excess(list.Items) {
		err := r.client.Delete(ctx, s.DeepCopy(), client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // a node has joined, or the cache is behind
			return err
		}
	}
	return nil
}

// excess returns the shapes without nodes beyond maxEmpty: first those that only one node ever had, then those whose last node was deleted
// first.
func excess(list []assayv1alpha1.NodeShape) []*assayv1alpha1.NodeShape {
	var empty []*assayv1alpha1.NodeShape
	for i := range list {
		if s := &list[i]; s.Status.Nodes != nil && *s.Status.Nodes == 0 && s.Status.LastSeen != nil {
			empty = append(empty, s)
		}
	}
	several := func(s *assayv1alpha1.NodeShape) int {
		if s.Status.OnlyNode == "" {
			return 1
		}
		return 0
	}
	slices.SortFunc(empty, func(a, b *assayv1alpha1.NodeShape) int {
		return cmp.Or(cmp.Compare(several(a), several(b)), a.Status.LastSeen.Time.Compare(b.Status.LastSeen.Time), strings.Compare(a.Name, b.Name))
	})
	return empty[:max(0, len(empty)-maxEmpty)]
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
