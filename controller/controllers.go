// Package controller registers the controllers of the manager.
package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/baseline"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/builtin"
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
	"github.com/assay-project/assay/controller/template"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/servertime"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/rules/review"
)

// Config is the configuration of the controllers, from the flags and the file of the manager.
type Config struct {
	Rules   rules.Options
	Sources gather.Policy
	Policy  plan.Policy
	// FailTaint is put on nodes whose labels are frozen by a fail action; nil: none.
	FailTaint *corev1.Taint
	// LossTaint is put, with a value, on nodes that no longer have what their pods require, if objects have onLoss: Taint; nil: none. It
	// needs Scheduling.
	LossTaint *corev1.Taint
	Disable   node.Disable
	DryRun    bool
	Grace     time.Duration
	Budget    budget.Budget
	// ConfirmEvery: see node.Options.
	ConfirmEvery time.Duration
	// Evictions is the pace of taints that evict pods.
	Evictions budget.Evictions
	// Ready writes the condition FeaturesReady on Nodes.
	Ready bool
	// Startup is the taint that is removed from Nodes with that condition.
	Startup node.Startup
	// Age returns how old an object is by its creationTimestamp; nil: by the clock of this process.
	Age func(created time.Time) time.Duration
	// Parallel is the number of nodes that are reconciled concurrently.
	Parallel int
	// Resync is the interval at which all nodes are reconciled without a change; 0: never.
	Resync time.Duration
	// Groups enables NodeFeatureGroups.
	Groups bool
	// Scheduling watches pods that require features, and notifies schedulers when features of nodes change. With an instance name, the
	// status of requests and policies needs it too.
	Scheduling bool
	// Requests limits the NodeFeatureRequests that are materialized.
	Requests compile.RequestLimits
	// Shapes are the names of the labels that make NodeShapes; none disables them. They need Ready, and no instance name.
	Shapes []string
	// Devices are the devices of DRA drivers, which the caller starts; nil: rules cannot read them.
	Devices *devices.Devices
	// Orphans configures the deletion of NodeFeatures of deleted nodes.
	Orphans orphan.Options
	// Topologies makes it delete NodeResourceTopologies of deleted nodes, too.
	Topologies bool
	// FeatureSets says when the controller repairs and deletes NodeFeatureSets.
	FeatureSets nodefeatureset.Options
	// DefaultTemplate and Version: see assembly.Options. DefinitionsEvery and Relist: see compile.Options.
	DefaultTemplate string
	Version         string
	// IDs returns the names of PCI and USB ids for warnings in conditions; nil: unknown.
	IDs              lint.IDs
	DefinitionsEvery time.Duration
	Relist           func(resource string)
	// BuiltInRules is the directory of built-in rules, which are always active; empty: none.
	BuiltInRules string
}

// Assembly returns the assembly options for everything that evaluates rules.
func (c Config) Assembly() compile.Options {
	return compile.Options{
		Assembly: assembly.Options{
			Rules: c.Rules, Namespace: c.Sources.Namespace, DefaultTemplate: c.DefaultTemplate, Version: c.Version,
			KeptName: assembly.KeptName(c.Policy.Record.Instance), IDs: c.IDs,
		},
		BuiltIn: c.BuiltInRules, DefinitionsEvery: c.DefinitionsEvery, Relist: c.Relist, Requests: c.Requests,
		Kinds: []string{definition.Features, definition.Sets},
	}
}

// settings identifies the settings that outcomes depend on: changing them explains removals, as changing the rules does. It does
// not include the pace and the limits of the controller.
func (c Config) settings() string {
	var namespaces string
	if c.Sources.Namespaces != nil {
		namespaces = c.Sources.Namespaces.String()
	}
	settings := []any{c.Rules, c.Policy.Record.Bare, c.Disable, c.Sources.IgnoreLabels, namespaces}
	if len(c.Sources.Drivers) > 0 {
		settings = append(settings, c.Sources.Drivers)
	}
	if c.Requests.Total > 0 {
		settings = append(settings, c.Requests)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		panic(err) // strings, booleans, and a regular expression, which marshals as a string
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Inputs returns the options for the inputs of rules. Live can be nil; see inputs.Options.
func (c Config) Inputs(live client.Reader) inputs.Options {
	policy := c.Sources
	policy.Keys, policy.Record = c.Rules.Keys, c.Policy.Record
	return inputs.Options{Policy: policy, Grace: c.Grace, Live: live, Devices: c.Devices}
}

// kinds returns the names of the definitions of the kinds whose objects the controllers write, in addition to those that rules come from.
func (c Config) kinds() (out []string) {
	if c.Groups {
		out = append(out, definition.Groups)
	}
	if c.Policy.Record.Instance == "" || c.Scheduling {
		out = append(out, definition.Policies)
		if c.Requests.Total == 0 {
			out = append(out, definition.Requests)
		}
	}
	if c.Policy.Record.Instance == "" && len(c.Shapes) > 0 {
		out = append(out, definition.Shapes)
	}
	return out
}

// Withholding returns which outputs of rules are not written to nodes.
func (c Config) Withholding() rules.Withholding {
	return rules.Withholding{
		All: c.DryRun, Taints: !c.Policy.Taints, Labels: c.Disable.Labels, Annotations: c.Disable.Annotations,
		ExtendedResources: c.Disable.ExtendedResources, Losses: c.LossTaint == nil,
	}
}

// Cache configures the manager's cache. The namespace is the manager's own; pages is the number of NodeFeatures per list request, 0
// for no paging. The cache adds the features of referenced sets, from the Store, to NodeFeatures.
func Cache(namespace string, pages int, sets *featuresets.Store) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      sets.Informers(NewBudget(namespace).Informers(nodecache.Informers(nodefeature.Paged(int64(pages))))),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:             {Transform: node.Slim},
			&nodefeature.NodeFeature{}: {Transform: nodefeature.Slim},
			&corev1.Secret{}:           {Namespaces: own},
			&corev1.ConfigMap{}:        {Namespaces: own},

			&assayv1alpha1.NodeFeatureSet{}: {Namespaces: own},
		},
	}
}

// WatchSets starts watching NodeFeatureSets, through the cache of a manager, when the first NodeFeature refers to one. Namespace is
// Assay's own.
func WatchSets(ctx context.Context, sets *featuresets.Store, namespace string, mgr ctrl.Manager) {
	storedSets.Store(sets)
	sets.Start(ctx, func() error {
		_, err := mgr.GetCache().GetInformer(ctx, &assayv1alpha1.NodeFeatureSet{}, cache.BlockUntilSynced(false))
		return err
	}, func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureSet, error) {
		set := &assayv1alpha1.NodeFeatureSet{}
		return set, mgr.GetAPIReader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, set)
	})
}

// Add registers all controllers with a manager. Sets are those of its cache.
func Add(mgr ctrl.Manager, c Config, sets *featuresets.Store) error {
	reportBuild()
	statusChanged := make(chan event.GenericEvent, statusBuffer)
	rulesChanged, nodesChanged := make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 1)
	statesChanged := make(chan event.GenericEvent, 1)
	rulesOf := c.Assembly()
	rulesOf.Baselines = c.Policy.Record.Instance == "" // the status has one writer, too
	rulesOf.Kinds = append(rulesOf.Kinds, c.kinds()...)
	assembled, err := compile.Add(mgr, rulesOf)
	if err != nil {
		return err
	}
	reg := assembled.Registry()
	store := provenance.NewStore(mgr.GetClient(), mgr.GetAPIReader(), c.Sources.Namespace, assembly.KeptName(c.Policy.Record.Instance))
	stats := rulestats.New(func(object string) { offer(statusChanged, object) })
	reg.OnChange(func() { offer(rulesChanged, "all") })
	watchdog := node.NewWatchdog(clock.RealClock{})
	if c.Age == nil {
		c.Age = servertime.New(clock.RealClock{}).Age
	}
	var losses node.Losses
	if c.LossTaint != nil && c.Scheduling {
		losses = node.Losses{Taint: *c.LossTaint, Tracker: loss.NewTracker(clock.RealClock{})}
	}
	c.FeatureSets.Writable = func() bool {
		return assembled.Definitions().Writable(definition.Features) && assembled.Definitions().Writable(definition.Sets)
	}
	c.Orphans.Breaker, c.Orphans.Clock = budget.NewBreaker(c.Budget, clock.RealClock{}), clock.RealClock{}
	// The manager waits for existing informers before it starts controllers, and NodeFeatures depend on Nodes.
	options := c.Inputs(mgr.GetAPIReader())
	options.Sets = sets
	options.Absent = func() bool { return assembled.Definitions().Of(definition.Features).State == definition.Absent }
	nodes := inputs.New(options)
	nodes.OnChange(func(change inputs.Change) {
		if change.Input {
			offer(nodesChanged, "all")
		}
		offer(statesChanged, "all")
	})
	nodes.OnDevicesProblem(func() { offer(nodesChanged, "all") })
	if c.Devices != nil {
		slicesOf.Store(c.Devices)
	}
	if err := nodes.Watch(context.Background(), mgr.GetCache()); err != nil {
		return err
	}
	cached := client.Reader(mgr.GetClient())
	published.cache.Store(&cached)
	for _, add := range []func() error{
		func() error {
			return builtin.Add(mgr, assembled.BuiltIn(), c.Sources.Namespace)
		},
		func() error {
			return rule.Add(mgr, rule.Options{
				Rules: assembled, Stats: stats, Changed: statusChanged, Store: store, Nodes: nodes,
				Withholding: c.Withholding(),
			})
		},
		func() error { return template.Add(mgr, assembled) },
		func() error {
			return node.Add(mgr, node.Options{
				Vanished: assembled.Vanished, Suspended: assembled.Suspended, Definitions: assembled.Definitions(),
				Registry: reg, Object: assembled.Object, Confirm: assembled.Confirm, Store: store, Settings: c.settings(), Stats: stats, RulesChanged: rulesChanged,
				Inputs: nodes, Namespace: c.Sources.Namespace, Namespaces: c.Sources.Namespaces != nil,
				Policy: c.Policy, FailTaint: c.FailTaint, Disable: c.Disable, DryRun: c.DryRun,
				Breaker: budget.NewBreaker(c.Budget, clock.RealClock{}), ConfirmEvery: c.ConfirmEvery, Gate: budget.NewGate(c.Evictions, clock.RealClock{}), Watchdog: watchdog,
				Clock: clock.RealClock{}, Age: c.Age, Parallel: c.Parallel, NotifySchedulers: c.Scheduling, Ready: c.Ready, Startup: c.Startup, Losses: losses,
				Requests: c.Requests.Total > 0,
			})
		},
		func() error {
			if !c.Groups {
				return nil
			}
			return group.Add(mgr, group.Options{Definitions: assembled.Definitions(), Known: review.Known{Rules: c.Rules, IDs: c.IDs}, Nodes: nodes, NodesChanged: nodesChanged})
		},
		func() error {
			if !c.Scheduling && c.Policy.Record.Instance != "" {
				return nil
			}
			return request.Add(mgr, request.Options{
				Nodes: nodes, Rules: reg, Materialized: assembled, IDs: c.IDs, Pods: c.Scheduling, Losses: losses.Tracker, Withholding: c.Withholding(),
			})
		},
		func() error {
			if len(c.Shapes) == 0 || !c.Ready || c.Policy.Record.Instance != "" {
				return nil
			}
			return shape.Add(mgr, shape.Options{Definitions: assembled.Definitions(), Labels: c.Shapes, Policy: c.Policy, Clock: clock.RealClock{}})
		},
		func() error {
			if c.Policy.Record.Instance != "" {
				return nil // the status has one writer, the controller without an instance
			}
			return baseline.Add(mgr, baseline.Options{
				Definitions: assembled.Definitions(), Known: review.Known{Rules: c.Rules, IDs: c.IDs, Withholding: c.Withholding()}, Nodes: nodes, NodesChanged: statesChanged, Clock: clock.RealClock{},
			})
		},
		func() error { return reportDefinitions(mgr, assembled.Definitions(), c.Sources.Namespace) },
		func() error { return mgr.Add(nodes) },
		func() error { return orphan.Add(mgr, nodes.Describing, c.Orphans) },
		func() error {
			if !c.Topologies {
				return nil
			}
			opt := c.Orphans
			opt.Breaker = budget.NewBreaker(c.Budget, clock.RealClock{})
			return orphan.AddTopologies(mgr, opt)
		},
		func() error { return nodefeatureset.Add(mgr, sets, c.Sources.Namespace, c.FeatureSets) },
		func() error { return health(mgr, reg, watchdog) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return mgr.Add(resync{every: c.Resync, notify: reg.Touch})
}

// offer sends an event unless the channel is full: the sender must not block on the receiver.
func offer(to chan<- event.GenericEvent, name string) {
	select {
	case to <- event.GenericEvent{Object: &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
	default:
	}
}

// healthPatience is the maximum time that a readiness check waits for caches to be filled.
const healthPatience = 100 * time.Millisecond

// health adds health checks: the liveness check fails if a reconciliation hangs; the readiness check succeeds once the caches are
// filled and the rules are compiled, on the leader and on standbys.
func health(mgr ctrl.Manager, reg *assembly.Registry, watchdog *node.Watchdog) error {
	if err := mgr.AddHealthzCheck("passes", watchdog.Check); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("rules", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), healthPatience)
		defer cancel()
		switch {
		case !mgr.GetCache().WaitForCacheSync(ctx):
			return errors.New("the caches are not filled yet")
		case reg.Program() == nil:
			return errors.New("the rules are not compiled yet")
		}
		return nil
	})
}

// statusBuffer is the maximum number of queued status updates.
const statusBuffer = 4096

// resync reconciles all nodes periodically, in case watches miss an event.
type resync struct {
	every  time.Duration
	notify func()
}

// Start implements manager.Runnable.
func (r resync) Start(ctx context.Context) error {
	if r.every > 0 {
		_ = wait.PollUntilContextCancel(ctx, r.every, false, func(context.Context) (bool, error) { r.notify(); return false, nil })
	}
	<-ctx.Done()
	return nil
}
