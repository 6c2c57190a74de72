// Package node writes the outputs of rules to Nodes. It is the only writer of Nodes.
package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/settings"
)

// Options configure the controller.
type Options struct {
	Settings *settings.Settings
	// Fingerprint identifies the settings that outcomes depend on in addition to the rules.
	Fingerprint string
	// Namespace is the manager's namespace.
	Namespace string
	Rules     *compile.Rules
	// Store persists the record of which objects gave keys.
	Store *provenance.Store
	Stats *rulestats.Stats
	// RulesChanged delivers an event whenever all nodes have to be evaluated again.
	RulesChanged <-chan event.GenericEvent
	// Inputs are the inputs of rules for each node. They are watched elsewhere.
	Inputs *inputs.Nodes
	// Losses knows the losses of all nodes; nil: no node is tainted because of them.
	Losses  *loss.Tracker
	Breaker *budget.Breaker
	// Health is the budget of taints and conditions that rules give because of the health of nodes.
	Health *budget.Breaker
	// ConfirmEvery is how often a confirmation is searched for while removals are held; 0: every 30 seconds.
	ConfirmEvery time.Duration
	// Gate sets the pace of taints that evict pods.
	Gate     *budget.Gate
	Watchdog *Watchdog
	Clock    clock.PassiveClock
	// Age returns how old an object is by its creationTimestamp.
	Age func(created time.Time) time.Duration
}

// Add registers the controller. It watches:
//
//   - Nodes: another client can change keys that the controller manages, a kubelet can reset an extended resource, and a
//     Node can be recreated. Heartbeats are filtered out.
//   - NodeFeatures: the features of a node have changed.
//   - devices of DRA drivers, if a rule reads them.
//   - changes of the rules, through the registry: every node can be affected.
//   - losses of features, if nodes are tainted because of them.
func Add(mgr ctrl.Manager, opt Options) error {
	r := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		events:   mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		clock:    opt.Clock,
		age:      opt.Age,
		registry: opt.Rules.Registry(),
		inputs:   opt.Inputs,
		settings: decide.SettingsOf(opt.Settings),
		losses:   opt.Losses,
		owners: &owners{
			registry: opt.Rules.Registry(), settings: opt.Fingerprint, object: opt.Rules.Object, confirm: opt.Rules.Confirm,
			vanished: opt.Rules.Vanished, suspended: opt.Rules.Suspended, definitions: opt.Rules.Definitions(),
		},
		limits:   limits{breaker: opt.Breaker, health: opt.Health, gate: opt.Gate, changes: flap.NewChanges(opt.Clock)},
		fleet:    &fleet{cache: mgr.GetCache(), client: mgr.GetClient(), clock: opt.Clock},
		memory:   newMemory(),
		stats:    opt.Stats,
		metrics:  sharedMetrics(),
		watchdog: opt.Watchdog,
		holds:    newHolds(mgr.GetClient(), mgr.GetAPIReader(), opt.Clock, opt.Settings.Instance, opt.Namespace),
	}
	r.owners.keep(opt.Store, r.fleet.count)
	// A standby fills its queue too, so that it can take over immediately.
	warm := true
	b := ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(relevant)).
		Watches(&nodefeature.NodeFeature{}, handler.EnqueueRequestsFromMapFunc(nodeOf), builder.WithPredicates(changedFeatures)).
		WatchesRawSource(source.Channel(opt.RulesChanged, settled{fleet: r.fleet})).
		WatchesRawSource(changedDevices(r.inputs)).
		WithOptions(controller.Options{MaxConcurrentReconciles: opt.Settings.Parallelism, RateLimiter: limiter(), EnableWarmup: &warm})
	if r.losses != nil {
		b = b.WatchesRawSource(lostNodes(r.losses, r.fleet))
	}
	if opt.Settings.Restrictions.NodeFeatureNamespaceSelector != nil { // the labels of other namespaces decide whether their NodeFeatures count
		b = b.WatchesMetadata(inputs.Namespace(), handler.EnqueueRequestsFromMapFunc(nodesOfNamespace(r.client)),
			builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	for _, c := range []confirmations{
		{annotation: ConfirmAnnotation, breaker: opt.Breaker, waiting: r.metrics.waiting},
		{annotation: ConfirmAdditionsAnnotation, breaker: opt.Health, waiting: r.metrics.waitingHealth},
	} {
		c.live, c.namespace, c.every, c.confirmed = mgr.GetAPIReader(), opt.Namespace, opt.ConfirmEvery, r.registry.Touch
		if err := mgr.Add(&c); err != nil {
			return err
		}
	}
	return b.Complete(r)
}

// settled enqueues all nodes after a short delay: applying a directory of rules causes one pass over the nodes, not one per file.
type settled struct {
	handler.Funcs
	fleet *fleet
}

// Generic implements handler.EventHandler.
func (s settled) Generic(ctx context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, req := range s.fleet.requests(ctx) {
		q.AddAfter(req, assembly.Settle)
	}
}

// limiter backs off each node separately: a node whose patch always fails does not delay the others.
func limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 2*time.Minute)
}

// relevant filters out updates of Nodes that change nothing that a rule or a plan reads.
var relevant = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.UID != after.UID || !facts.SameNode(before, after) ||
			!maps.Equal(before.Labels, after.Labels) ||
			!maps.Equal(before.Annotations, after.Annotations) ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
			before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, sameCondition)
	},
}

// sameCondition compares what conditions say, not when.
func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// changedFeatures filters out updates of NodeFeatures that change no fact, label, target or owner, and no errors of the worker's configuration.
var changedFeatures = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*nodefeature.NodeFeature), e.ObjectNew.(*nodefeature.NodeFeature)
		return before.UID != after.UID || before.Generation != after.Generation || before.NodeName() != after.NodeName() ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || nodefeature.Rejected(before) != nodefeature.Rejected(after) ||
			!slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, sameOwner)
	},
}

func sameOwner(a, b metav1.OwnerReference) bool { return a.UID == b.UID && a.Kind == b.Kind }

func nodeOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*nodefeature.NodeFeature).NodeName()
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// nodesOfNamespace returns requests for the nodes that NodeFeatures in a namespace describe.
func nodesOfNamespace(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, ns client.Object) (out []reconcile.Request) {
		var list nodefeature.NodeFeatureList
		if err := c.List(ctx, &list, client.InNamespace(ns.GetName()), client.UnsafeDisableDeepCopy); err != nil {
			return nil // only before the cache has started; every node is enqueued then anyway
		}
		for i := range list.Items {
			out = append(out, nodeOf(ctx, &list.Items[i])...)
		}
		return out
	}
}

// lostNodes delivers the nodes whose losses have changed.
func lostNodes(tracker *loss.Tracker, all *fleet) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		tracker.OnChange(func(name string) {
			if name != "" {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
				return
			}
			for _, req := range all.requests(ctx) {
				q.Add(req)
			}
		})
		return nil
	})
}

// changedDevices delivers the nodes whose devices of DRA drivers have changed.
func changedDevices(nodes *inputs.Nodes) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		nodes.OnDevices(func(name string) { q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}) })
		return nil
	})
}

// Slim removes fields that the manager does not read from a Node before it is cached: images and the messages of the conditions of Kubernetes
// are most of its size.
func Slim(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields = nil
		taints, capacity := n.Spec.Taints, extended(n.Status.Capacity)
		boot, conditions := n.Status.NodeInfo.BootID, n.Status.Conditions
		n.Spec, n.Status = facts.NodeParts(n)
		n.Spec.Taints, n.Status.Capacity = taints, capacity
		n.Status.NodeInfo.BootID = boot
		for i := range conditions {
			if !native(conditions[i]) {
				n.Status.Conditions[i] = conditions[i]
			}
		}
	}
	return obj, nil
}

// extended returns the extended resources of a list, which are those that rules can set. The others have no namespace.
func extended(list corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for name, amount := range list {
		if strings.Contains(string(name), "/") {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = amount
		}
	}
	return out
}

// native reports whether a condition is one that neither Assay nor a rule can write, because its type has no namespace.
func native(c corev1.NodeCondition) bool { return !strings.Contains(string(c.Type), "/") }
