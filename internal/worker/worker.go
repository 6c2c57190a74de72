// Package worker discovers the features of a host periodically and on events, and publishes them.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/discovery/flap"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/watch"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/worker/memory"
	"github.com/assay-project/assay/internal/worker/start"
)

// Worker is the daemon. One goroutine discovers, one publishes, and one runs the HTTP server.
type Worker struct {
	opt     Options
	log     *slog.Logger
	host    host.Host
	node    string
	metrics *metrics

	config   *workerconfig.Settings
	runner   *discovery.Runner
	sources  []string        // names of the sources that may run
	covered  []string        // names of the sources whose changes cause events
	glances  bool            // sources that support it may skip what events cover
	polls    int             // number of polls since the last full discovery
	problems map[string]bool // problems that were already logged, so that each is logged once
	damper   flap.Damper
	held     []string      // what the damper is suppressing
	release  time.Duration // time until the damper may release something; 0 if it suppresses nothing
	rejected string        // the errors of the configuration that was rejected last; empty: the configuration is valid
	leftOut  []string      // the parts of the last report that could not be published, and why
	last     publish.Content
	found    bool // the last published content
	start    *start.Start

	publishing publishing
	connection connection
	sandboxed  bool
	trimmed    time.Time   // used only by the publisher's goroutine
	untrimmed  atomic.Bool // a trim was postponed
}

// New returns a worker with the current configuration. It does not connect to the cluster yet.
func New(opt Options, log *slog.Logger) (*Worker, error) {
	paths := hostPaths(&opt)
	paths.NodeName = nodeName(&opt)
	h := host.Real(paths)
	w := &Worker{opt: opt, log: log, host: h, node: h.System.NodeName(), problems: map[string]bool{}}
	w.start = start.New(log)
	w.metrics = newMetrics(w.node)
	c, warnings, err := workerconfig.Load(opt.ConfigFile, opt.Inline, opt.Override)
	if err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	w.use(c, warnings)
	return w, nil
}

// use applies a configuration.
func (w *Worker) use(c *workerconfig.Settings, warnings []string) {
	for _, warning := range warnings {
		w.log.Warn("Configuration warning", "warning", warning)
	}
	if c.LogLevel != "" {
		_ = w.opt.LogLevel.UnmarshalText([]byte(c.LogLevel)) // a level that does not exist is among the warnings
	}
	list := sources(&w.opt, c, w.log)
	if w.opt.wrap != nil {
		list = w.opt.wrap(list)
	}
	features, _ := discovery.Choose(c.FeatureSources, list) // the configuration has warnings about unknown names
	labels, _ := discovery.Choose(c.LabelSources, list)
	if w.sandboxed && c.Local.HooksEnabled {
		w.log.Warn("Cannot run hooks: the sandbox forbids this process to execute files; restart the worker")
	}
	w.config, w.damper = c, flap.Damper{} // changes caused by the configuration are intended
	w.sources = nil
	for _, s := range list {
		w.sources = append(w.sources, s.Name())
	}
	w.runner = discovery.NewRunner(w.host, list, discovery.Selection{Features: features, Labels: labels})
	w.keep()
}

// Run discovers and publishes until ctx is done. With Oneshot it does so once, and prints the result to stdout if Output is set.
func (w *Worker) Run(ctx context.Context, stdout io.Writer) error {
	w.log.Info("Starting assay-worker", "version", build.Version(), "node", w.node)
	if w.opt.Oneshot {
		return w.once(ctx, stdout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	if w.opt.Port != 0 {
		serve, err := listen(ctx, w.opt.Port, w.metrics.handler())
		if err != nil {
			return err
		}
		running.Go(func() { serve(ctx) })
	}
	defer func() { w.publishing.stop() }()
	if err := w.republish(ctx); err != nil {
		return err
	}
	events := w.listen(ctx, &running)
	w.restrict()
	w.loop(ctx, events)
	w.log.Info("Stopping assay-worker")
	return nil
}

// once discovers and publishes once.
func (w *Worker) once(ctx context.Context, stdout io.Writer) error {
	c, err := w.first(ctx)
	if err != nil {
		return err
	}
	if w.opt.Output != "" {
		if err := export(stdout, w.opt.Output, w.node, namespace(&w.opt), c); err != nil {
			return err
		}
	}
	if w.config.NoPublish {
		return nil
	}
	p, err := w.publisher()
	if err != nil {
		return err
	}
	_, err = p.Publish(ctx, c)
	return err
}

// loop discovers what events announce, discovers everything periodically, and passes on new results.
func (w *Worker) loop(ctx context.Context, events <-chan []string) {
	var names []string // nil means all sources
	var again <-chan time.Time
	glance := false
	for due := true; ; {
		if c, changed := w.discover(ctx, glance, names...); changed && ctx.Err() == nil {
			w.publishing.hand(c)
		}
		if due && w.config.SleepInterval > 0 {
			again = time.After(w.config.SleepInterval)
		}
		var quiet <-chan time.Time
		if wait := w.wait(); wait > 0 {
			quiet = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-quiet:
			names, due, glance = start.Nothing, false, false
		case <-w.runner.Returned():
			names, due, glance = start.Nothing, false, false
		case <-again:
			names, due = w.poll(), true
			glance = w.glances && names != nil
		case event := <-events:
			names = w.affected(ctx, event)
			due, glance = names == nil, false
			w.log.Debug("Received events", "sources", event)
		}
	}
}

// everythingEvery is the number of polling intervals between full discoveries. Events may be lost without notice, so sources with
// events are also polled, but rarely: every ten minutes by default.
const everythingEvery = 10

// poll returns the sources to run after an interval. Nil means all.
func (w *Worker) poll() []string {
	if w.polls++; w.polls >= everythingEvery || len(w.covered) == 0 {
		w.polls = 0
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.sources), func(name string) bool { return slices.Contains(w.covered, name) })
}

// affected returns the sources to run after an event. Nil means all. If the configuration has changed, it applies it.
func (w *Worker) affected(ctx context.Context, event []string) []string {
	if slices.Contains(event, configSource) && w.reload(ctx) || slices.Contains(event, watch.Everything) {
		return nil
	}
	return event
}

// reload reads the configuration again if it has changed. An invalid configuration is reported, and the last valid one stays active.
func (w *Worker) reload(ctx context.Context) bool {
	c, warnings, err := workerconfig.Load(w.opt.ConfigFile, w.opt.Inline, w.opt.Override)
	if err != nil {
		w.reject(err)
		return false
	}
	w.rejected = ""
	w.metrics.configured(true)
	if reflect.DeepEqual(c, w.config) {
		return false
	}
	w.publishing.stop() // its content is garbage now, and so are the caches of the old sources
	w.use(c, warnings)
	memory.GiveBack()
	w.log.Info("Reloaded the configuration")
	if err := w.republish(ctx); err != nil {
		w.log.Error("Stopped publishing", "error", err)
	}
	return true
}

// reject logs an invalid configuration and counts it, once. The next discovery publishes it.
func (w *Worker) reject(wrong error) {
	if wrong.Error() == w.rejected {
		return
	}
	w.rejected = wrong.Error()
	w.metrics.configured(false)
	w.log.Error("Invalid configuration; keeping the previous one", "error", wrong)
}

// listen returns a channel with events from the host until ctx is done.
func (w *Worker) listen(ctx context.Context, running *sync.WaitGroup) <-chan []string {
	h, errs := watch.Open(targets(&w.opt))
	for _, err := range errs {
		w.log.Warn("Cannot watch some event sources; falling back to polling", "error", err)
	}
	w.covered, w.glances = h.Covered(w.host), h.Devices()
	if h.Files() { // custom rules may use them
		w.covered = append(w.covered, custom.Name)
	}
	w.log.Debug("Watching events", "sources", w.covered)
	names, events := make(chan string), make(chan []string)
	running.Go(func() { watch.Debounce(ctx, clock.RealClock{}, names, events) })
	running.Go(func() {
		h.Run(ctx, func(name string) {
			select {
			case names <- name:
			case <-ctx.Done():
			}
		})
	})
	return events
}

// discover runs the named sources, or all, and reports whether the result has changed. If glance is set, sources may skip what
// events cover.
func (w *Worker) discover(ctx context.Context, glance bool, names ...string) (publish.Content, bool) {
	began := time.Now()
	w.metrics.discovering()
	run := w.runner.Run
	if glance {
		run = w.runner.Poll
	}
	report := run(ctx, names...)
	report, complete := w.start.Settle(ctx, w.runner, report, w.stored())
	w.metrics.waitFor(w.start.Waiting())
	took := time.Since(began)
	w.metrics.discovered(took)
	w.metrics.unfound(w.sources, report.Unfound)
	if !complete {
		w.report(report.Problems)
		return w.last, false
	}
	if w.found && !report.Changed && w.release == 0 && w.last.Rejected == w.rejected {
		w.report(report.Problems)
		return w.last, false
	}
	var c publish.Content
	c, w.leftOut = w.content(report)
	c = w.damp(time.Now(), c)
	w.report(report.Problems)
	if w.found && sameContent(&w.last, &c) {
		return w.last, false
	}
	w.log.Debug("Discovered features", "took", took, "sources", names)
	w.last, w.found = c, true
	return c, true
}

// keep gives the sources of a new configuration what was found with the previous one: none of them has answered yet, and some may be
// slow. If nothing has been published yet, what the new configuration disables is removed without further waiting.
func (w *Worker) keep() {
	if w.start.Over() {
		w.runner.Restore(&w.last.Features, w.last.Labels)
	} else if w.start.Waiting() != "" {
		w.start.WaitAtMost(0)
	}
}

// wait returns the time until something has to be done without an event; 0 means that there is nothing.
func (w *Worker) wait() time.Duration {
	if wait := w.start.Wait(); wait > 0 {
		return wait
	}
	return w.release
}

// stored returns a function that reads what an earlier worker published; nil if publishing is disabled.
func (w *Worker) stored() start.Stored {
	if w.config.NoPublish {
		return nil
	}
	return func(ctx context.Context) (*publish.Stored, error) {
		p, err := w.publisher()
		if err != nil {
			return nil, err
		}
		return p.Stored(ctx)
	}
}

// first discovers until the result can be published.
func (w *Worker) first(ctx context.Context) (publish.Content, error) {
	names := []string(nil)
	for {
		c, ok := w.discover(ctx, false, names...)
		if ok || w.start.Err() != nil {
			return c, w.start.Err()
		}
		names = start.Nothing
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-w.runner.Returned():
		case <-time.After(w.wait()):
		}
	}
}

// damp suppresses features that change too often, and logs it.
func (w *Worker) damp(now time.Time, c publish.Content) publish.Content {
	spec, wait := w.damper.Apply(now, nfdv1alpha1.NodeFeatureSpec{Features: c.Features, Labels: c.Labels})
	w.release = wait
	held := w.damper.Held()
	for _, name := range held {
		if !slices.Contains(w.held, name) {
			w.log.Warn("Suppressed an element that changes repeatedly", "element", name)
		}
	}
	w.held = held
	w.metrics.suppress(len(held))
	return publish.Content{Features: spec.Features, Labels: spec.Labels, Rejected: c.Rejected}
}

// report logs each problem once until it disappears.
func (w *Worker) report(problems []discovery.SourceError) {
	messages := slices.Clone(w.leftOut)
	var missing []error
	for _, p := range problems {
		messages = append(messages, p.String())
		if errors.Is(p.Err, host.ErrNotMounted) {
			missing = append(missing, p.Err)
		}
	}
	w.metrics.mounted(errors.Join(missing...))
	now := make(map[string]bool, len(messages))
	for _, text := range messages {
		now[text] = true
		if !w.problems[text] {
			w.log.Warn("Discovery has a problem", "problem", text)
		}
	}
	for text := range maps.Keys(w.problems) {
		if !now[text] {
			w.log.Info("A problem of discovery is resolved", "problem", text)
		}
	}
	w.problems = now
}
