// Package directory keeps the rules of a directory in force.
//
// Such built-in rules are the administrator's: they are no objects, so that nobody who may write NodeFeatureRules can edit or
// delete them, and their priority is not bounded, so that they can have the last word, or the first.
package directory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/internal/assembly"
)

// every is how often the directory is looked at. A kubelet takes up to a minute to update a mounted ConfigMap, so two seconds
// more are nothing; and a look at a few small files costs less than a watch that has to follow the kubelet's symbolic links,
// and cannot miss anything.
const every = 2 * time.Second

// Directory keeps what lies in a directory in a registry. It implements manager.Runnable, for every replica.
type Directory struct {
	path     string
	registry *assembly.Registry
	valid    prometheus.Gauge
	changed  chan struct{} // holds an element if the state may be another

	mu      sync.Mutex
	latest  *Set // what the directory holds
	inForce *Set // what is in the registry
}

// New returns a directory whose rules are in the registry. It is looked at again once it runs.
func New(path string, registry *assembly.Registry) *Directory {
	d := &Directory{path: path, registry: registry, valid: validGauge(), changed: make(chan struct{}, 1)}
	d.load(logf.Log)
	return d
}

// State returns what the directory holds, and what of that, or of what it held before, is in force.
func (d *Directory) State() (latest, inForce *Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest, d.inForce
}

// Changed delivers an element when the state may be another one, for one reader.
func (d *Directory) Changed() <-chan struct{} { return d.changed }

// validGauge is 1 while what the directory holds is in force. It is of the process: managers may follow one another in it.
var validGauge = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_builtin_rules_valid",
		Help: "1 if the active built-in rules are those in the directory; 0 if those have errors.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys have the rules at hand.
func (*Directory) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (d *Directory) Start(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			d.load(logf.FromContext(ctx))
		}
	}
}

// load reads the directory if it has changed. A set with mistakes is used only if there is none before it: at a start, the
// rules of the good files are better than none.
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
	if good || d.inForce == nil {
		d.inForce = next
		d.registry.PutBuiltIn(next.Compiled())
	}
	if good {
		d.valid.Set(1)
		log.Info("Loaded built-in rules", "directory", d.path, "objects", len(next.Objects))
	} else {
		d.valid.Set(0)
		log.Error(fmt.Errorf("%d errors; the first: %s", len(next.Problems), next.Problems[0]),
			"the built-in rules have errors; the last valid ones stay active", "directory", d.path)
	}
	select {
	case d.changed <- struct{}{}:
	default: // told already
	}
}

// logger is the part of a logr.Logger that is used.
type logger interface {
	Info(message string, keysAndValues ...any)
	Error(err error, message string, keysAndValues ...any)
}
