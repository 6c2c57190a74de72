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
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/builtin"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/nodefeatureset"
	"github.com/assay-project/assay/controller/orphan"
	"github.com/assay-project/assay/controller/template"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/settings"
)

// Config is the configuration of the controllers: the settings of the administrator, and what the program knows.
type Config struct {
	*settings.Settings
	// Namespace is Assay's own.
	Namespace string
	// Version: see assembly.Options. DefinitionsEvery and Relist: see compile.Options. ConfirmEvery: see node.Options.
	Version                        string
	DefinitionsEvery, ConfirmEvery time.Duration
	Relist                         func(resource string)
	// Age returns how old an object is by its creationTimestamp; nil: by the clock of this process.
	Age func(created time.Time) time.Duration
	// IDs returns the names of PCI and USB ids for warnings in conditions; nil: unknown.
	IDs lint.IDs
	// Devices are the devices of DRA drivers, which the caller starts; nil: rules cannot read them.
	Devices *devices.Devices
	// FeatureSets says when the controller repairs and deletes NodeFeatureSets.
	FeatureSets nodefeatureset.Options
}

// Assembly returns the assembly options for everything that evaluates rules.
func (c Config) Assembly() compile.Options {
	return compile.Options{
		Assembly: assembly.Options{
			Rules: c.Rules(), Namespace: c.Namespace, DefaultTemplate: c.DefaultTemplate, Version: c.Version,
			KeptName: assembly.KeptName(c.Instance), IDs: c.IDs,
		},
		BuiltIn: c.BuiltInRules, DefinitionsEvery: c.DefinitionsEvery, Relist: c.Relist, Requests: c.Materialized(),
		Kinds: []string{definition.Features, definition.Sets},
	}
}

// fingerprint identifies the settings that outcomes depend on: changing them explains removals, as changing the rules does. It does
// not include the pace and the limits of the controller.
func (c Config) fingerprint() string {
	sources := c.Sources()
	var namespaces string
	if sources.Namespaces != nil {
		namespaces = sources.Namespaces.String()
	}
	w := c.Withholding()
	disabled := struct{ Labels, Annotations, ExtendedResources bool }{w.Labels, w.Annotations, w.ExtendedResources}
	parts := []any{c.Rules(), c.Record().Bare, disabled, sources.IgnoreLabels, namespaces}
	if len(c.DRADrivers) > 0 {
		parts = append(parts, c.DRADrivers)
	}
	if limits := c.Materialized(); limits.Total > 0 {
		parts = append(parts, limits)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings, booleans, and a regular expression, which marshals as a string
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Sources returns which NodeFeatures count and how they are merged.
func (c Config) Sources() gather.Policy { return c.Gather(c.Namespace) }

// Inputs returns the options for the inputs of rules. Live can be nil; see inputs.Options.
func (c Config) Inputs(live client.Reader) inputs.Options {
	return inputs.Options{Policy: c.Sources(), Grace: c.RemovalGracePeriod, Live: live, Devices: c.Devices}
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

// controllers lists the controllers in the order of their registration, with the definitions of the kinds whose objects they write, in
// addition to those that rules come from.
var controllers = []struct {
	enabled func(Config) bool
	kinds   []string
	add     func(*registration) error
}{
	{always, nil, func(r *registration) error { return builtin.Add(r.mgr, r.rules.BuiltIn(), r.Namespace) }},
	{always, nil, (*registration).addRule},
	{always, nil, func(r *registration) error { return template.Add(r.mgr, r.rules) }},
	{always, nil, (*registration).addNode},
	{groups, []string{definition.Groups}, (*registration).addGroup},
	{requests, []string{definition.Policies, definition.Requests}, (*registration).addRequest},
	{shapes, []string{definition.Shapes}, (*registration).addShape},
	{primary, nil, (*registration).addBaseline},
	{always, nil, func(r *registration) error { return reportDefinitions(r.mgr, r.definitions, r.Namespace) }},
	{always, nil, func(r *registration) error { return r.mgr.Add(r.nodes) }},
	{always, nil, func(r *registration) error { return orphan.Add(r.mgr, r.nodes.Describing, r.orphans()) }},
	{topologies, nil, func(r *registration) error { return orphan.AddTopologies(r.mgr, r.orphans()) }},
	{always, nil, (*registration).addFeatureSets},
	{always, nil, func(r *registration) error { return health(r.mgr, r.rules.Registry(), r.watchdog) }},
	{always, nil, func(r *registration) error {
		return r.mgr.Add(resync{every: r.ResyncPeriod, notify: r.rules.Registry().Touch})
	}},
}

func always(Config) bool       { return true }
func primary(c Config) bool    { return c.Primary() } // the status has one writer, the controller without an instance name
func groups(c Config) bool     { return c.FeatureGates[settings.GateGroups] }
func scheduling(c Config) bool { return c.FeatureGates[settings.GateScheduling] }
func requests(c Config) bool   { return primary(c) || scheduling(c) }
func shapes(c Config) bool     { return primary(c) && c.FeaturesReady && len(c.NodeShapeLabels) > 0 }
func topologies(c Config) bool { return c.GcTopologies }

// Add registers all controllers that are enabled with a manager. Sets are those of its cache.
func Add(mgr ctrl.Manager, c Config, sets *featuresets.Store) error {
	reportBuild()
	r, err := prepare(mgr, c, sets)
	if err != nil {
		return err
	}
	for _, controller := range controllers {
		if !controller.enabled(c) {
			continue
		}
		if err := controller.add(r); err != nil {
			return err
		}
	}
	return nil
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
