// Package rule compiles NodeFeatureRules and reports on them. It is the only writer of their status.
package rule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/schema"
	"github.com/assay-project/assay/controller/tally"
	"github.com/assay-project/assay/internal/assembly"
)

// statusBuffer is how many objects may wait for their status to be looked at before a reporter has to wait itself.
const statusBuffer = 1024

// Options of the controller.
type Options struct {
	Registry *assembly.Registry
	Tally    *tally.Tally
	// Census says when the counts of the tally mean something.
	Census *tally.Census
	// Changed delivers the names of objects whose summary in the tally has changed.
	Changed <-chan event.GenericEvent
	// Namespace is the manager's own: the one of Secrets and ConfigMaps that rules refer to.
	Namespace string
	// DefaultTemplate is the name of a NodeFeatureRuleTemplate that every object is based on besides its own bases; empty:
	// none.
	DefaultTemplate string
	// Version is the version of this program, which a rule's minimumVersion is compared with. One that is no version
	// understands everything.
	Version string
	// Schema knows which fields of a NodeFeatureRule the API server drops, because another chart has installed the definition;
	// nil: none.
	Schema *schema.Guard
	// SchemaEvery is how often that is looked at; 0: schema.DefaultEvery.
	SchemaEvery time.Duration
}

// Add registers the controllers. What they watch, and why:
//
//   - NodeFeatureRules: to be compiled, and reported on.
//   - NodeFeatureRuleTemplates, Secrets and ConfigMaps of the own namespace: objects that refer to one that has changed are
//     assembled again, and no others.
//   - the tally: what rules do on nodes has changed.
//
// Rules are compiled on every replica, not only on the leader: a standby that compiled nothing would have to begin with it.
// Only the leader writes status.
func Add(mgr ctrl.Manager, opt Options) error {
	compiled := make(chan event.GenericEvent, statusBuffer)
	c := newCompiler(mgr.GetClient(), mgr.GetAPIReader(), opt, func(name string) {
		select {
		case compiled <- event.GenericEvent{Object: &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		default: // a standby, which writes no status; a leader compares all of them when it begins
		}
	})
	everywhere := false
	err := ctrl.NewControllerManagedBy(mgr).
		Named("rule-compile").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		Complete(reconcile.Func(c.Reconcile))
	if err != nil {
		return err
	}
	err = builder.TypedControllerManagedBy[ref](mgr).
		Named("rule-references").
		Watches(&assayv1alpha1.NodeFeatureRuleTemplate{}, changes(templateRef),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, changes(secretRef)).
		WatchesMetadata(&corev1.ConfigMap{}, changes(configMapRef)).
		WithOptions(controller.TypedOptions[ref]{NeedLeaderElection: &everywhere}).
		Complete(reconcile.TypedFunc[ref](c.ReconcileReference))
	if err != nil {
		return err
	}
	st := &start{compiler: c, cache: mgr.GetCache()}
	if opt.Schema != nil {
		st.schema = &schema.Watch{Guard: opt.Schema, Every: opt.SchemaEvery, Changed: st.compileAll}
	}
	if err := mgr.Add(st); err != nil {
		return err
	}
	s := &reporter{
		client:   mgr.GetClient(),
		events:   mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		tally:    opt.Tally,
		census:   opt.Census,
		compiler: c,
		keeper:   keeper{client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: opt.Namespace},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("rule-status").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(opt.Changed, enqueue{}, source.WithBufferSize[client.Object, reconcile.Request](statusBuffer))).
		WatchesRawSource(source.Channel(compiled, enqueue{}, source.WithBufferSize[client.Object, reconcile.Request](statusBuffer))).
		Complete(reconcile.Func(s.Reconcile))
}

// changes names what has changed. Which objects refer to it is looked up when they are compiled, all of them as one change.
func changes(kind refKind) handler.TypedEventHandler[client.Object, ref] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ref {
		return []ref{{kind, o.GetName()}}
	})
}

// enqueue puts an object into the queue after a delay: nodes report one after another, and one write of the status after
// all of them is enough.
type enqueue struct{ handler.Funcs }

// Generic implements handler.EventHandler.
func (enqueue) Generic(_ context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}, statusDelay)
}
