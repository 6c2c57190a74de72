package builtin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Options of the controller.
type Options struct {
	// Dir holds the rules; empty: there are none.
	Dir string
	// Namespace is the manager's own, where the status is written.
	Namespace string
	Registry  *assembly.Registry
	// Every is how often the directory is looked at; 0: DefaultEvery.
	Every time.Duration
}

// DefaultEvery is how often the directory is looked at. A kubelet takes up to a minute to update a mounted ConfigMap, so two
// seconds more are nothing; and a look at a few small files costs less than a watch that has to follow the kubelet's symbolic
// links, and cannot miss anything.
const DefaultEvery = 2 * time.Second

// Add loads the rules of a directory, and has them loaded again whenever it changes, on every replica. The leader reports on
// them in a ConfigMap.
func Add(mgr ctrl.Manager, opt Options) error {
	if opt.Dir == "" {
		return nil
	}
	if opt.Every == 0 {
		opt.Every = DefaultEvery
	}
	l := &loader{opt: opt, valid: validGauge(), changed: make(chan struct{}, 1)}
	// Before the registry is ready: nodes that were evaluated without these rules would lose what they give.
	l.load(logf.Log)
	if err := mgr.Add(l); err != nil {
		return err
	}
	return mgr.Add(&reporter{loader: l, client: mgr.GetClient(), live: mgr.GetAPIReader()})
}

// validGauge is 1 while what the directory holds is in force. It is of the process: managers may follow one another in it.
var validGauge = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_builtin_rules_valid",
		Help: "1 if the built-in rules in force are those in the directory; 0 if those have mistakes.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// loader keeps the rules of the directory in the registry.
type loader struct {
	opt     Options
	valid   prometheus.Gauge
	changed chan struct{} // holds an element if the status may be another

	mu      sync.Mutex
	latest  *Set // what the directory holds
	inForce *Set // what is in the registry
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys have the rules at hand.
func (*loader) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (l *loader) Start(ctx context.Context) error {
	ticker := time.NewTicker(l.opt.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			l.load(logf.FromContext(ctx))
		}
	}
}

// load reads the directory if it has changed. A set with mistakes is used only if there is none before it: at a start, the
// rules of the good files are better than none.
func (l *loader) load(log logger) {
	files, digest, err := read(l.opt.Dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	var next *Set
	switch {
	case err != nil:
		next = &Set{Problems: []string{unreadable(l.opt.Dir, err)}}
		if l.latest != nil && len(l.latest.Problems) == 1 && l.latest.Problems[0] == next.Problems[0] {
			return
		}
	case l.latest != nil && l.latest.Digest == digest:
		return
	default:
		next = compile(files, digest, l.opt.Registry.Options())
	}
	l.latest = next
	good := len(next.Problems) == 0
	if good || l.inForce == nil {
		l.inForce = next
		l.opt.Registry.PutBuiltIn(next.Compiled())
	}
	if good {
		l.valid.Set(1)
		log.Info("built-in rules are loaded", "directory", l.opt.Dir, "objects", len(next.Objects))
	} else {
		l.valid.Set(0)
		log.Error(fmt.Errorf("%d mistakes; the first: %s", len(next.Problems), next.Problems[0]),
			"the built-in rules have mistakes; the last good ones stay in force", "directory", l.opt.Dir)
	}
	select {
	case l.changed <- struct{}{}:
	default: // told already
	}
}

func (l *loader) state() (latest, inForce *Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest, l.inForce
}

// logger is the part of a logr.Logger that is used.
type logger interface {
	Info(message string, keysAndValues ...any)
	Error(err error, message string, keysAndValues ...any)
}

// reporter writes the status ConfigMap.
type reporter struct {
	loader *loader
	client client.Client
	live   client.Reader
}

// retry is how long after a failure the status is tried again.
const retry = 10 * time.Second

// Start implements manager.Runnable. It runs on the leader only.
func (r *reporter) Start(ctx context.Context) error {
	for {
		wait := (<-chan time.Time)(nil)
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "report on the built-in rules")
			wait = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait:
		case <-r.loader.changed:
		}
	}
}
