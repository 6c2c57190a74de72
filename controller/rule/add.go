// Package rule updates the status of NodeFeatureRules. It is the only writer of that status.
package rule

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules"
)

// statusBuffer is the maximum number of queued status updates; when it is full, reporters block.
const statusBuffer = 1024

// statusDelay is how long reports of nodes are batched before the status of an object is written: more than one write per second
// and object is of no use to readers.
const statusDelay = time.Second

// Options configure the controller.
type Options struct {
	// Rules are the compiled rules.
	Rules *compile.Rules
	Stats *rulestats.Stats
	// Changed delivers the names of objects whose summary in Stats has changed.
	Changed <-chan event.GenericEvent
	// Withholding configures which outputs are not written.
	Withholding rules.Withholding
	// Nodes know whether the devices of DRA drivers can be read.
	Nodes *inputs.Nodes
	// Store persists the last good result of objects that cannot be resolved now.
	Store *provenance.Store
}

// Add registers the controller; only the leader writes. It watches:
//
//   - NodeFeatureRules: creation and deletion.
//   - the results of compiling them.
//   - whether the devices of DRA drivers can be read.
//   - Stats: the outputs of rules on nodes have changed.
func Add(mgr ctrl.Manager, opt Options) error {
	assembled := make(chan event.GenericEvent, statusBuffer)
	opt.Rules.OnObject(func(name string) {
		select {
		case assembled <- event.GenericEvent{Object: &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		default: // a standby, which writes no status; a new leader compares all of them
		}
	})
	devices := make(chan event.GenericEvent, 1)
	opt.Nodes.OnDevicesProblem(func() {
		select {
		case devices <- event.GenericEvent{Object: &nfdv1alpha1.NodeFeatureRule{}}:
		default: // an event is already waiting
		}
	})
	s := &reporter{
		devices:     opt.Nodes.DevicesProblem,
		client:      mgr.GetClient(),
		cache:       mgr.GetCache(),
		events:      mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		stats:       opt.Stats,
		rules:       opt.Rules,
		withholding: opt.Withholding,
		keeper:      keeper{live: mgr.GetAPIReader(), store: opt.Store},
	}
	accepted := &acceptances{rules: opt.Rules, store: opt.Store, changed: make(chan struct{}, 1)}
	opt.Rules.OnObject(func(string) { accepted.note() })
	if err := mgr.Add(accepted); err != nil {
		return err
	}
	countConditions(mgr.GetClient())
	return ctrl.NewControllerManagedBy(mgr).
		Named("rule-status").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(informer.SpecChanged)).
		WatchesRawSource(source.Channel(opt.Changed, enqueue{}, source.WithBufferSize[client.Object, reconcile.Request](statusBuffer))).
		WatchesRawSource(source.Channel(assembled, enqueue{}, source.WithBufferSize[client.Object, reconcile.Request](statusBuffer))).
		WatchesRawSource(source.Channel(devices, handler.EnqueueRequestsFromMapFunc(s.all))).
		Complete(reconcile.Func(s.Reconcile))
}

// all returns all objects.
func (s *reporter) all(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := s.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only before the cache has started; every object is enqueued then anyway
	}
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// enqueue adds an object to the queue after a delay: nodes report one after another, and one write of the status after all of them
// is enough.
type enqueue struct{ handler.Funcs }

// Generic implements handler.EventHandler.
func (enqueue) Generic(_ context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}, statusDelay)
}
