package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/baseline"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/group"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/nodefeatureset"
	"github.com/assay-project/assay/controller/orphan"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/request"
	"github.com/assay-project/assay/controller/rule"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/controller/shape"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/servertime"
	"github.com/assay-project/assay/rules/review"
)

// registration is what the controllers share while they are registered with a manager.
type registration struct {
	Config
	mgr         ctrl.Manager
	rules       *compile.Rules
	definitions *follow.Definitions
	sets        *featuresets.Store
	nodes       *inputs.Nodes
	store       *provenance.Store
	stats       *rulestats.Stats
	watchdog    *node.Watchdog
	losses      *loss.Tracker // nil: no node is tainted because of them

	// These deliver an event when the summary of an object in stats, the rules, the inputs of a node, or its state has changed.
	statusChanged, rulesChanged, nodesChanged, statesChanged chan event.GenericEvent
}

// prepare returns what the controllers share, with the rules and the inputs of nodes, which it starts to watch.
func prepare(mgr ctrl.Manager, c Config, sets *featuresets.Store) (*registration, error) {
	r := &registration{
		Config: c, mgr: mgr, sets: sets, watchdog: node.NewWatchdog(clock.RealClock{}),
		store:         provenance.NewStore(mgr.GetClient(), mgr.GetAPIReader(), c.Namespace, assembly.KeptName(c.Instance)),
		statusChanged: make(chan event.GenericEvent, statusBuffer), rulesChanged: make(chan event.GenericEvent, 1),
		nodesChanged: make(chan event.GenericEvent, 1), statesChanged: make(chan event.GenericEvent, 1),
	}
	if r.Age == nil {
		r.Age = servertime.New(clock.RealClock{}).Age
	}
	r.stats = rulestats.New(func(object string) { offer(r.statusChanged, object) })
	if c.LossTaint != "" {
		r.losses = loss.NewTracker(clock.RealClock{})
	}
	assembly := c.Assembly()
	assembly.Baselines = primary(c)
	for _, controller := range controllers {
		if controller.enabled(c) {
			assembly.Kinds = append(assembly.Kinds, controller.kinds...)
		}
	}
	var err error
	if r.rules, err = compile.Add(mgr, assembly); err != nil {
		return nil, err
	}
	r.definitions = r.rules.Definitions()
	r.rules.Registry().OnChange(func() { offer(r.rulesChanged, "all") })
	return r, r.watch()
}

// watch watches the inputs of nodes. The manager waits for existing informers before it starts controllers, and NodeFeatures depend on Nodes.
func (r *registration) watch() error {
	options := r.Inputs(r.mgr.GetAPIReader())
	options.Sets = r.sets
	options.Absent = func() bool { return r.definitions.Of(definition.Features).State == definition.Absent }
	r.nodes = inputs.New(options)
	r.nodes.OnChange(func(change inputs.Change) {
		if change.Input {
			offer(r.nodesChanged, "all")
		}
		offer(r.statesChanged, "all")
	})
	r.nodes.OnDevicesProblem(func() { offer(r.nodesChanged, "all") })
	if r.Devices != nil {
		slicesOf.Store(r.Devices)
	}
	if err := r.nodes.Watch(context.Background(), r.mgr.GetCache()); err != nil {
		return err
	}
	cached := client.Reader(r.mgr.GetClient())
	published.cache.Store(&cached)
	return nil
}

// known is the knowledge about the cluster that reviews depend on.
func (r *registration) known() review.Known {
	return review.Known{Rules: r.Rules(), IDs: r.IDs, Withholding: r.Withholding()}
}

// breaker returns a budget of removals of its own.
func (r *registration) breaker() *budget.Breaker {
	return budget.NewBreaker(r.RemovalBudget, clock.RealClock{})
}

func (r *registration) addRule() error {
	return rule.Add(r.mgr, rule.Options{
		Rules: r.rules, Stats: r.stats, Changed: r.statusChanged, Store: r.store, Nodes: r.nodes, Withholding: r.Withholding(),
	})
}

func (r *registration) addNode() error {
	return node.Add(r.mgr, node.Options{
		Settings: r.Settings, Fingerprint: r.fingerprint(), Namespace: r.Namespace,
		Rules: r.rules, Store: r.store, Stats: r.stats, RulesChanged: r.rulesChanged, Inputs: r.nodes, Losses: r.losses,
		Breaker: r.breaker(), Health: budget.NewBreaker(budget.OfHealth(r.HealthBudget), clock.RealClock{}), ConfirmEvery: r.ConfirmEvery, Gate: budget.NewGate(r.NoExecuteBudget, clock.RealClock{}),
		Watchdog: r.watchdog, Clock: clock.RealClock{}, Age: r.Age,
	})
}

func (r *registration) addGroup() error {
	return group.Add(r.mgr, group.Options{Definitions: r.definitions, Known: r.known(), Nodes: r.nodes, NodesChanged: r.nodesChanged})
}

func (r *registration) addRequest() error {
	return request.Add(r.mgr, request.Options{
		Nodes: r.nodes, Rules: r.rules.Registry(), Materialized: r.rules, IDs: r.IDs, Pods: scheduling(r.Config), Losses: r.losses, Withholding: r.Withholding(),
	})
}

func (r *registration) addShape() error {
	return shape.Add(r.mgr, shape.Options{Definitions: r.definitions, Labels: r.NodeShapeLabels, Policy: r.Plan(), Clock: clock.RealClock{}})
}

func (r *registration) addBaseline() error {
	return baseline.Add(r.mgr, baseline.Options{
		Definitions: r.definitions, Known: r.known(), Nodes: r.nodes, NodesChanged: r.statesChanged, Clock: clock.RealClock{},
	})
}

func (r *registration) orphans() orphan.Options {
	return orphan.Options{Interval: r.GcInterval, Grace: r.GcGracePeriod, Breaker: r.breaker(), Clock: clock.RealClock{}}
}

func (r *registration) addFeatureSets() error {
	options := r.FeatureSets
	options.Writable = func() bool {
		return r.definitions.Writable(definition.Features) && r.definitions.Writable(definition.Sets)
	}
	return nodefeatureset.Add(r.mgr, r.sets, r.Namespace, options)
}

// statusBuffer is the maximum number of queued status updates.
const statusBuffer = 4096

// offer sends an event unless the channel is full: the sender must not block on the receiver.
func offer(to chan<- event.GenericEvent, name string) {
	select {
	case to <- event.GenericEvent{Object: &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
	default:
	}
}
