package orphan

import (
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/internal/listing"
)

// topologyPasses is the number of passes in an interval: an object outlives its Node for the grace period, and less than this part of the
// interval more.
const topologyPasses = 10

// Topologies deletes NodeResourceTopologies that have the name of no Node: those that another publisher has left behind. Those of Assay are
// owned by their Node, with which Kubernetes deletes them.
//
// It lists metadata only, and keeps nothing but the names of objects without a Node.
type Topologies struct {
	client  client.Client // its cache has the Nodes
	live    client.Reader
	opt     Options
	missing map[string]time.Time // by name, since when the Node is missing
	seen    map[string]bool      // names of Nodes that this process has seen
}

// AddTopologies registers the deletion of NodeResourceTopologies, unless the interval disables deletion.
func AddTopologies(mgr ctrl.Manager, opt Options) error {
	if opt.Interval <= 0 {
		return nil
	}
	return mgr.Add(newTopologies(mgr.GetClient(), mgr.GetAPIReader(), opt))
}

func newTopologies(c client.Client, live client.Reader, opt Options) *Topologies {
	return &Topologies{client: c, live: live, opt: opt, missing: map[string]time.Time{}, seen: map[string]bool{}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Topologies) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. An error of a pass is logged: the next one may succeed.
func (t *Topologies) Start(ctx context.Context) error {
	log := logf.FromContext(ctx).WithName("orphan")
	every := min(t.opt.Interval/topologyPasses, t.opt.Grace)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := t.pass(logf.IntoContext(ctx, log)); err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot delete NodeResourceTopologies of deleted nodes")
		}
	}, max(every, time.Second))
	return nil
}

// pass checks each object once. Without the kind, it does nothing.
func (t *Topologies) pass(ctx context.Context) error {
	var gone []metav1.PartialObjectMetadata
	var errs []error
	total := 0
	there := map[string]bool{}
	err := listing.Pages(ctx, ofKind(t.live, v1alpha2.NodeResourceTopologyGVK), func(list *metav1.PartialObjectMetadataList) {
		total += len(list.Items)
		for i := range list.Items {
			o := &list.Items[i]
			there[o.Name] = true
			err := t.client.Get(ctx, client.ObjectKey{Name: o.Name}, &corev1.Node{}, client.UnsafeDisableDeepCopy)
			switch {
			case err == nil:
				t.seen[o.Name] = true
				delete(t.missing, o.Name)
				t.opt.Breaker.Withdraw(o.Name)
			case !apierrors.IsNotFound(err):
				errs = append(errs, err)
			case o.DeletionTimestamp == nil && t.due(o):
				gone = append(gone, *o)
			}
		}
	})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	for name := range t.missing {
		if !there[name] {
			delete(t.missing, name)
			t.opt.Breaker.Withdraw(name)
		}
	}
	maps.DeleteFunc(t.seen, func(name string, _ bool) bool { return !there[name] })
	for i := range gone {
		errs = append(errs, t.remove(ctx, &gone[i], total))
	}
	return errors.Join(errs...)
}

// due reports whether the Node of an object has been missing for the grace period. An object whose Node was never seen may be older than it.
func (t *Topologies) due(o *metav1.PartialObjectMetadata) bool {
	now := t.opt.Clock.Now()
	since, known := t.missing[o.Name]
	if !known {
		since = now
		t.missing[o.Name] = now
	}
	return now.Sub(since) >= t.opt.Grace && (t.seen[o.Name] || now.Sub(o.CreationTimestamp.Time) >= precede)
}

// remove deletes an object if the API server confirms that it has no Node, and if the budget allows it.
func (t *Topologies) remove(ctx context.Context, o *metav1.PartialObjectMetadata, total int) error {
	var node metav1.PartialObjectMetadata
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := t.live.Get(ctx, client.ObjectKey{Name: o.Name}, &node); !apierrors.IsNotFound(err) {
		return err // nil: the cache is behind
	}
	if ok, _ := t.opt.Breaker.Allow(o.Name, total); !ok {
		return nil
	}
	o.SetGroupVersionKind(v1alpha2.NodeResourceTopologyGVK)
	if err := t.client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		if apierrors.IsConflict(err) {
			return nil // it has just been published: the next pass checks it again
		}
		failures.WithLabelValues("NodeResourceTopology").Inc()
		return err
	}
	deleted.WithLabelValues("NodeResourceTopology").Inc()
	logf.FromContext(ctx).Info("Deleted NodeResourceTopology of a deleted node", "node", o.Name)
	return nil
}

// ofKind returns a reader that lists the metadata of a kind.
func ofKind(r client.Reader, kind schema.GroupVersionKind) client.Reader { return kindReader{r, kind} }

type kindReader struct {
	client.Reader
	kind schema.GroupVersionKind
}

func (r kindReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	list.(*metav1.PartialObjectMetadataList).SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	return r.Reader.List(ctx, list, opts...)
}
