// Package controller lists the controllers of the manager.
package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/builtin"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/registry"
	"github.com/assay-project/assay/controller/rule"
	"github.com/assay-project/assay/controller/schema"
	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// Config is what the manager's flags and its file say about the controllers.
type Config struct {
	Rules   rules.Options
	Sources node.Sources
	Policy  plan.Policy
	Disable node.Disable
	DryRun  bool
	Grace   time.Duration
	Budget  node.Budget
	// Parallel is how many nodes are worked on at once.
	Parallel int
	// Resync is how often all nodes are looked at without any reason; 0: never.
	Resync time.Duration
	// DefaultTemplate, Version and SchemaEvery: see rule.Options.
	DefaultTemplate string
	Version         string
	SchemaEvery     time.Duration
	// BuiltInRules is a directory of rules that are always in force; empty: none.
	BuiltInRules string
}

// Scheme holds the kinds that the manager works with, NodeFeatures in their cached form.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, feed.AddToScheme, assayv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Cache says what the manager keeps of the objects it watches. Namespace is its own.
func Cache(namespace string) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:      {Transform: node.Slim},
			&feed.NodeFeature{}: {Transform: feed.Slim},
			&corev1.Secret{}:    {Namespaces: own},
			&corev1.ConfigMap{}: {Namespaces: own},
		},
	}
}

// Add registers all controllers with a manager.
func Add(mgr ctrl.Manager, c Config) error {
	statusChanged := make(chan event.GenericEvent, statusBuffer)
	rulesChanged := make(chan event.GenericEvent, 1)
	reg := registry.New(c.Rules)
	tally := registry.NewTally(func(object string) {
		select {
		case statusChanged <- event.GenericEvent{Object: named(object)}:
		default: // the object is looked at again with its next report; a node must not wait for a status
		}
	})
	reg.OnChange(func() {
		select {
		case rulesChanged <- event.GenericEvent{Object: named("all")}:
		default: // one is waiting already
		}
	})
	breaker := node.NewBreaker(c.Budget, clock.RealClock{})
	watchdog := node.NewWatchdog(clock.RealClock{})
	for _, add := range []func() error{
		func() error {
			return builtin.Add(mgr, builtin.Options{Dir: c.BuiltInRules, Namespace: c.Sources.Namespace, Registry: reg})
		},
		func() error {
			return rule.Add(mgr, rule.Options{
				Registry: reg, Tally: tally, Changed: statusChanged, Namespace: c.Sources.Namespace,
				DefaultTemplate: c.DefaultTemplate, Version: c.Version, Schema: schema.New(mgr.GetAPIReader()), SchemaEvery: c.SchemaEvery,
			})
		},
		func() error {
			return node.Add(mgr, node.Options{
				Registry: reg, Tally: tally, RulesChanged: rulesChanged, Sources: c.Sources, Policy: c.Policy,
				Keys: &c.Rules.Keys, Disable: c.Disable, DryRun: c.DryRun, Grace: c.Grace, Breaker: breaker, Watchdog: watchdog,
				Clock: clock.RealClock{}, Parallel: c.Parallel, Resync: c.Resync,
			})
		},
	} {
		if err := add(); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("passes", watchdog.Check); err != nil {
		return err
	}
	return mgr.Add(resync{every: c.Resync, notify: reg.Touch})
}

// statusBuffer is how many objects may wait for a look at their status.
const statusBuffer = 4096

func named(name string) client.Object {
	return &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// resync has all nodes looked at from time to time: the safety net below the watches.
type resync struct {
	every  time.Duration
	notify func()
}

// Start implements manager.Runnable.
func (r resync) Start(ctx context.Context) error {
	if r.every <= 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.notify()
		}
	}
}
