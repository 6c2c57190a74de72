package baseline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/review"
)

// retryUnsynced is the delay before a retry while the states of nodes are not known.
const retryUnsynced = time.Second

// Reconciler writes the status of one NodeBaseline.
type Reconciler struct {
	client client.Client
	events record.EventRecorder
	opt    Options
	fleet  *atomic.Int64 // the number of nodes

	mu       sync.Mutex
	compiled map[string]*compiled // by name
}

// compiled is a baseline as of one generation.
type compiled struct {
	uid        types.UID
	generation int64
	found      review.Findings
}

// Reconcile implements reconcile.Reconciler. It evaluates all nodes and keeps nothing of them.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeBaseline
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.opt.Nodes.Synced() {
		return ctrl.Result{RequeueAfter: retryUnsynced}, nil
	}
	found, err := r.review(ctx, &obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := metav1.NewTime(r.opt.Clock.Now())
	var want *assayv1alpha1.NodeBaselineStatus
	if b := found.Baseline; b != nil {
		r.opt.Nodes.Need(b.Reads())
		result := b.Fleet(r.nodes(ctx, b))
		report(obj.Name, result)
		want = result.Status(&obj.Status, obj.Generation, now)
	} else {
		withdraw(obj.Name)
		want = baseline.Invalid(&obj.Status, obj.Generation, now)
	}
	condition.Of(&want.Conditions, obj.Generation).Reviewed(found.Errors, found.Warnings, "")
	if equality.Semantic.DeepEqual(&obj.Status, want) {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	obj.Status = *want
	if err := r.client.Status().Patch(ctx, &obj, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	condition.Announce(r.events, &obj, before.Status.Conditions, want.Conditions, "BaselineNotReady")
	r.announce(&obj, before.Status.Conditions, want.Conditions)
	return ctrl.Result{}, nil
}

// announce emits an Event when nodes begin to deviate.
func (r *Reconciler) announce(obj client.Object, before, after []metav1.Condition) {
	old, now := meta.FindStatusCondition(before, assayv1alpha1.ConditionConforming), meta.FindStatusCondition(after, assayv1alpha1.ConditionConforming)
	if now.Status == metav1.ConditionFalse && (old == nil || old.Status != now.Status || old.Reason != now.Reason) {
		r.events.Event(obj, corev1.EventTypeWarning, now.Reason, now.Message)
	}
}

// nodes returns the inputs of all nodes.
func (r *Reconciler) nodes(ctx context.Context, b *baseline.Baseline) []baseline.Node {
	states := r.opt.Nodes.All()
	r.fleet.Store(int64(len(states)))
	now := r.opt.Clock.Now()
	out := make([]baseline.Node, 0, len(states))
	for _, s := range states {
		name := s.Input.Node.Name
		if node := r.opt.Nodes.Node(ctx, name); node != nil { // otherwise it is being removed, and another event follows
			out = append(out, baseline.NodeOf(s.Input, baseline.Evidence{
				Object: node, Published: r.opt.Nodes.Publishes(name), Devices: s.Devices.Facts,
				Doubtful: s.Blind || s.Held(), DevicesDoubtful: s.Devices.Unseen(now),
			}, b.ReadsDevices()))
		}
	}
	return out
}

// review returns the findings about a baseline, with an error if older baselines leave no room for it.
func (r *Reconciler) review(ctx context.Context, obj *assayv1alpha1.NodeBaseline) (review.Findings, error) {
	var list assayv1alpha1.NodeBaselineList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return review.Findings{}, err
	}
	slices.SortFunc(list.Items, func(a, b assayv1alpha1.NodeBaseline) int { return assembly.OldestFirst(&a, &b) })
	r.mu.Lock()
	defer r.mu.Unlock()
	number, size := 0, 0
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == obj.UID {
			break
		}
		if b := r.compile(other).Baseline; b != nil && number < baseline.MaxBaselines && size+b.Size() <= baseline.MaxClusterSize {
			number++
			size += b.Size()
		}
	}
	found := r.compile(obj)
	if b := found.Baseline; b != nil && (number >= baseline.MaxBaselines || size+b.Size() > baseline.MaxClusterSize) {
		found.Baseline = nil
		found.Errors = field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
			"a cluster may have %d NodeBaselines, and all of them may take %d bytes of memory when they are compiled; older ones leave no room for this one: "+
				"delete some, or use fewer values and simpler patterns", baseline.MaxBaselines, baseline.MaxClusterSize))}
	}
	return found, nil
}

// compile returns the findings about a baseline. The caller holds the lock.
func (r *Reconciler) compile(obj *assayv1alpha1.NodeBaseline) review.Findings {
	c := r.compiled[obj.Name]
	if c == nil || c.uid != obj.UID || c.generation != obj.Generation {
		c = &compiled{uid: obj.UID, generation: obj.Generation, found: review.Review(obj, r.opt.Known)}
		r.compiled[obj.Name] = c
	}
	return c.found
}

// forget removes a deleted baseline.
func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.compiled, name)
	withdraw(name)
}
