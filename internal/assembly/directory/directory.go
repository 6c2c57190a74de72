// Package directory loads built-in rules from a directory and reloads them when they change.
//
// Built-in rules belong to the administrator: they are not objects, so that users who may write NodeFeatureRules cannot edit or
// delete them. Their priority is not limited, so that they can be evaluated before or after all others.
package directory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/internal/assembly"
)

// every is the interval at which the directory is read. A kubelet takes up to a minute to update a mounted ConfigMap, so two more
// seconds do not matter. Reading a few small files costs less than a watch, which would have to follow the kubelet's symbolic
// links, and cannot miss changes.
const every = 2 * time.Second

// Directory keeps the rules of a directory in a registry.
type Directory struct {
	path     string
	registry *assembly.Registry
	valid    prometheus.Gauge
	changed  chan struct{} // receives an element when the state may have changed

	mu      sync.Mutex
	latest  *Set // the content of the directory
	inForce *Set // the set in the registry
}

// New loads the rules of a directory into the registry. Start reloads them when they change.
func New(path string, registry *assembly.Registry) *Directory {
	d := &Directory{path: path, registry: registry, valid: validGauge(), changed: make(chan struct{}, 1)}
	d.load(logf.Log)
	return d
}

// State returns the set that the directory contains, and the active set, which may be an older one.
func (d *Directory) State() (latest, inForce *Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, d.inForce
}

// Lost returns the state of a built-in object that is not active while the directory has errors: it is unknown whether it is still in the
// directory. Nil means that it is not, or that it is active. A directory with errors replaces no rules, but a process that starts with it has
// no others.
func (d *Directory) Lost(name string) *assembly.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.latest.Problems) == 0 || slices.ContainsFunc(d.inForce.Objects, func(o Object) bool { return o.set.Name == name }) {
		return nil
	}
	return &assembly.Object{UID: types.UID(name), Unresolved: &assembly.Error{
		Reason: "BuiltInRulesInvalid", Message: "the directory of built-in rules has errors: " + d.latest.Problems[0],
	}}
}

// Changed returns a channel that receives an element when the state may have changed. It supports one reader.
func (d *Directory) Changed() <-chan struct{} { return d.changed }

// validGauge is 1 while the set in the directory is active. It is shared by the managers of this process, which may run one after
// the other.
var validGauge = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_builtin_rules_valid",
		Help: "1 if the active built-in rules are those in the directory; 0 if those have errors.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// Start reloads the rules when they change, until the context ends.
func (d *Directory) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { d.load(logf.FromContext(ctx)) }, every)
	return nil
}

// load reads the directory and replaces the active set if it has changed. A set with errors is used only at the start, where the
// rules of the valid files are better than none.
func (d *Directory) load(log logger) {
	files, digest, err := read(d.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	var next *Set
	switch {
	case err != nil:
		next = &Set{Problems: []string{unreadable(d.path, err)}}
		if d.latest != nil && len(d.latest.Problems) == 1 && d.latest.Problems[0] == next.Problems[0] {
			return
		}
	case d.latest != nil && d.latest.Digest == digest:
		return
	default:
		next = compile(files, digest, d.registry.Options())
	}
	d.latest = next
	good := len(next.Problems) == 0
	message := "Built-in rules have errors; the last valid ones stay active"
	if good || d.inForce == nil {
		message = "Built-in rules have errors; only those without errors are active"
		d.inForce = next
		d.registry.PutBuiltIn(next.Compiled())
	}
	if good {
		d.valid.Set(1)
		log.Info("Loaded built-in rules", "directory", d.path, "objects", len(next.Objects))
	} else {
		d.valid.Set(0)
		log.Error(fmt.Errorf("%d errors; the first: %s", len(next.Problems), next.Problems[0]),
			message, "directory", d.path)
	}
	select {
	case d.changed <- struct{}{}:
	default: // a notification is already pending
	}
}

// logger is the subset of logr.Logger that load needs.
type logger interface {
	Info(message string, keysAndValues ...any)
	Error(err error, message string, keysAndValues ...any)
}
