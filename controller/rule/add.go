// Package rule compiles NodeFeatureRules and reports on them. It is the only writer of their status.
package rule

import (
	"context"

	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/registry"
)

// statusBuffer is how many objects may wait for their status to be looked at before a reporter has to wait itself.
const statusBuffer = 1024

// Reconciler compiles NodeFeatureRules into the registry and writes their status.
type Reconciler struct {
	client   client.Client
	events   record.EventRecorder
	registry *registry.Registry
	tally    *registry.Tally
	reports  *reports
	missing  []string // fields of ours that the served schema lacks
}

// Options of the controller.
type Options struct {
	Registry *registry.Registry
	Tally    *registry.Tally
	// Changed delivers the names of objects whose summary in the tally has changed.
	Changed <-chan event.GenericEvent
	// MissingFields are fields of the NodeFeatureRule that the served schema lacks, because another chart has installed
	// the definition. Rules that would need them cannot be told from rules that do not.
	MissingFields []string
}

// Add registers the controller.
//
// It runs on every replica, not only on the leader: a standby that compiled nothing would have to begin with it. Only the
// leader writes status.
func Add(mgr ctrl.Manager, opt Options) error {
	r := &Reconciler{
		client:   mgr.GetClient(),
		events:   mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		registry: opt.Registry,
		tally:    opt.Tally,
		reports:  newReports(),
		missing:  opt.MissingFields,
	}
	compile := reconcile.Func(r.Compile)
	everywhere := false
	err := ctrl.NewControllerManagedBy(mgr).
		Named("rule-compile").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		Complete(compile)
	if err != nil {
		return err
	}
	if err := mgr.Add(&start{reconciler: r, cache: mgr.GetCache()}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("rule-status").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(opt.Changed, enqueue{}, source.WithBufferSize[client.Object, reconcile.Request](statusBuffer))).
		Complete(reconcile.Func(r.Status))
}

// enqueue puts an object into the queue after a delay: nodes report one after another, and one write of the status after
// all of them is enough.
type enqueue struct{ handler.Funcs }

// Generic implements handler.EventHandler.
func (enqueue) Generic(_ context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}, statusDelay)
}
