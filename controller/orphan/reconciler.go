package orphan

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

const (
	// precede is how long an object is kept whose Node was never seen. A client that publishes features before the machine joins
	// does so within a day; older objects are leftovers.
	precede = 24 * time.Hour
)

// Reconciler decides whether to delete one NodeFeature.
type Reconciler struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder
	opt    Options

	mu       sync.Mutex
	missing  map[client.ObjectKey]time.Time // since when the Node of an object is missing
	seen     map[client.ObjectKey]string    // the Node of an object that this process has seen
	nameless map[client.ObjectKey]bool      // already reported
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var f nodefeature.NodeFeature
	if err := r.client.Get(ctx, req.NamespacedName, &f, client.UnsafeDisableDeepCopy); err != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if f.NodeName() == "" {
		r.reportNameless(&f)
		return ctrl.Result{}, nil
	}
	var node corev1.Node
	err := r.client.Get(ctx, client.ObjectKey{Name: f.NodeName()}, &node, client.UnsafeDisableDeepCopy)
	if err == nil {
		r.found(req.NamespacedName, f.NodeName())
		return ctrl.Result{}, nil
	}
	if !apierrors.IsNotFound(err) || f.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wait := r.wait(req.NamespacedName, &f); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return r.remove(ctx, &f)
}

// wait returns the remaining time before an object can be deleted.
func (r *Reconciler) wait(key client.ObjectKey, f *nodefeature.NodeFeature) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.opt.Clock.Now()
	since, known := r.missing[key]
	if !known {
		since = now
		r.missing[key] = now
	}
	wait := r.opt.Grace - now.Sub(since)
	if !r.hadNode(key, f) {
		wait = max(wait, precede-now.Sub(f.CreationTimestamp.Time))
	}
	if wait <= 0 {
		return 0
	}
	return min(wait, r.opt.Interval)
}

// hadNode reports whether the Node of an object is known to have existed: it was seen, or owns the object, or a worker ran on it.
func (r *Reconciler) hadNode(key client.ObjectKey, f *nodefeature.NodeFeature) bool {
	if r.seen[key] == f.NodeName() || f.Annotations[nfdv1alpha1.WorkerVersionAnnotation] != "" {
		return true
	}
	for _, o := range f.OwnerReferences {
		if o.Kind == "Node" && o.APIVersion == "v1" {
			return true
		}
	}
	return false
}

// remove deletes an object if the API server confirms that it and its Node are in the cached state, and if the budget allows it.
func (r *Reconciler) remove(ctx context.Context, f *nodefeature.NodeFeature) (ctrl.Result, error) {
	var node metav1.PartialObjectMetadata
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := r.live.Get(ctx, client.ObjectKey{Name: f.NodeName()}, &node)
	if err == nil {
		return ctrl.Result{RequeueAfter: r.opt.Interval}, nil // the cache is behind
	}
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	var all nodefeature.NodeFeatureList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	if ok, again := r.opt.Breaker.Allow(f.Publisher(), len(all.Items)); !ok {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	err = r.client.Delete(ctx, f.DeepCopyObject().(*nodefeature.NodeFeature), client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		failures.WithLabelValues("NodeFeature").Inc()
		return ctrl.Result{}, err
	}
	deleted.WithLabelValues("NodeFeature").Inc()
	logf.FromContext(ctx).Info("Deleted NodeFeature of a deleted node", "object", f.Publisher(), "node", f.NodeName())
	return ctrl.Result{}, nil
}

// reportNameless reports once that an object has no effect.
func (r *Reconciler) reportNameless(f *nodefeature.NodeFeature) {
	key := client.ObjectKeyFromObject(f)
	r.mu.Lock()
	said := r.nameless[key]
	r.nameless[key] = true
	r.mu.Unlock()
	if !said {
		r.events.Eventf(f, corev1.EventTypeWarning, "NoNodeName",
			"the label %s is missing or empty, so the object has no effect; it is left alone", nfdv1alpha1.NodeNameLabel)
	}
}

func (r *Reconciler) found(key client.ObjectKey, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, key)
	delete(r.nameless, key)
	r.seen[key] = node
	r.opt.Breaker.Withdraw(key.String())
}

func (r *Reconciler) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, key)
	delete(r.nameless, key)
	delete(r.seen, key)
	r.opt.Breaker.Withdraw(key.String())
}

// Metrics of nfd-gc.
var (
	deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nfd_gc_objects_deleted_total", Help: "NodeFeatures of deleted nodes that were deleted.",
	}, []string{"kind"})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nfd_gc_object_delete_failures_total", Help: "NodeFeatures of deleted nodes that could not be deleted.",
	}, []string{"kind"})
)

func init() { ctrlmetrics.Registry.MustRegister(deleted, failures) }
