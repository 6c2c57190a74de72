package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/publish"
)

// worker is the daemon: one goroutine that discovers, one that publishes, and the HTTP server beside them.
type worker struct {
	opt     *options
	log     *slog.Logger
	host    host.Host
	node    string
	metrics *metrics

	config   *config
	runner   *discovery.Runner
	problems map[string]bool // reported already, so that they are logged once and not at each discovery
	last     publish.Content
	found    bool
}

func newWorker(opt *options, log *slog.Logger) (*worker, error) {
	paths := hostPaths(opt)
	paths.NodeName = nodeName(opt)
	h := host.Real(paths)
	w := &worker{opt: opt, log: log, host: h, node: h.System.NodeName(), problems: map[string]bool{}}
	w.metrics = newMetrics(w.node)
	c, warnings, err := loadConfig(opt)
	if err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	w.use(c, warnings)
	return w, nil
}

// use takes a configuration into service.
func (w *worker) use(c *config, warnings []string) {
	for _, warning := range warnings {
		w.log.Warn(warning)
	}
	if c.logLevel != "" {
		if err := w.opt.logLevel.UnmarshalText([]byte(c.logLevel)); err != nil {
			w.log.Warn("core.logLevel is no level", "error", err)
		}
	}
	list := sources(c)
	features, unknown := discovery.Choose(c.featureSources, list)
	labels, unknownToo := discovery.Choose(c.labelSources, list)
	for _, name := range append(unknown, unknownToo...) {
		w.log.Warn("no such source", "name", name)
	}
	w.config = c
	w.runner = discovery.NewRunner(w.host, list, discovery.Selection{Features: features, Labels: labels})
}

// run discovers and publishes until ctx is done; once only with -oneshot.
func (w *worker) run(ctx context.Context, stdout io.Writer) error {
	w.log.Info("assay-worker starts", "version", version, "node", w.node)
	if w.opt.oneshot {
		return w.once(ctx, stdout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	if w.opt.port != 0 {
		serve, err := w.metrics.listen(w.opt.port)
		if err != nil {
			return err
		}
		running.Go(func() { serve(ctx) })
	}
	contents := make(chan publish.Content, 1)
	if w.config.noPublish {
		w.metrics.nothingToPublish()
	} else {
		p, err := w.publisher()
		if err != nil {
			return err
		}
		running.Go(func() { p.Run(ctx, contents) })
	}
	w.loop(ctx, contents)
	w.log.Info("assay-worker stops")
	return nil
}

// once discovers and publishes once.
func (w *worker) once(ctx context.Context, stdout io.Writer) error {
	c, _ := w.discover(ctx)
	if w.opt.output != "" {
		if err := export(stdout, w.opt.output, w.node, namespace(w.opt), c); err != nil {
			return err
		}
	}
	if w.config.noPublish {
		return nil
	}
	p, err := w.publisher()
	if err != nil {
		return err
	}
	_, err = p.Publish(ctx, c)
	return err
}

// loop discovers everything again and again, and hands on what is new.
func (w *worker) loop(ctx context.Context, contents chan publish.Content) {
	for {
		if c, changed := w.discover(ctx); changed && ctx.Err() == nil {
			w.hand(c, contents)
		}
		var again <-chan time.Time
		if w.config.sleepInterval > 0 {
			again = time.After(w.config.sleepInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}

// hand passes the latest content on, in place of one that has not been taken yet.
func (w *worker) hand(c publish.Content, contents chan publish.Content) {
	if w.config.noPublish {
		return
	}
	select {
	case <-contents:
	default:
	}
	contents <- c
}

// discover runs the named sources, or all, and reports whether the result is new.
func (w *worker) discover(ctx context.Context, names ...string) (publish.Content, bool) {
	start := time.Now()
	w.metrics.discovering()
	report := w.runner.Run(ctx, names...)
	took := time.Since(start)
	w.metrics.discovered(took)
	c, problems := w.content(report)
	for _, p := range report.Problems {
		problems = append(problems, p.String())
	}
	w.report(problems)
	if w.found && sameContent(w.last, c) {
		return w.last, false
	}
	w.log.Debug("discovered", "took", took, "sources", names)
	w.last, w.found = c, true
	return c, true
}

// report logs each problem once, until it has gone and come back.
func (w *worker) report(problems []string) {
	now := make(map[string]bool, len(problems))
	for _, text := range problems {
		now[text] = true
		if !w.problems[text] {
			w.log.Warn(text)
		}
	}
	for text := range maps.Keys(w.problems) {
		if !now[text] {
			w.log.Info("no longer: " + text)
		}
	}
	w.problems = now
}

// publisher connects to the cluster. It does not talk to it yet.
func (w *worker) publisher() (*publish.Publisher, error) {
	cfg, err := clusterConfig(w.opt)
	if errors.Is(err, publish.ErrNoCluster) {
		return nil, fmt.Errorf("%w; give -kubeconfig, or -no-publish", err)
	}
	if err != nil {
		return nil, err
	}
	client, err := publish.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	id := &identity{client: client, token: cfg.TokenFile, log: w.log, fallback: w.node}
	return publish.New(client, publish.Options{
		Namespace: namespace(w.opt),
		Identify:  id.identify,
		Version:   version,
		Owners:    w.config.owners,
		MaxBytes:  w.config.maxFeatureBytes,
		Observe:   w.observe,
	}), nil
}

// observe logs and counts what the publisher does.
func (w *worker) observe(e publish.Event) {
	w.metrics.published(e)
	switch {
	case errors.Is(e.Err, context.Canceled):
	case e.Err != nil:
		w.log.Warn("not published; will try again", "in", e.Retry.Round(time.Millisecond), "error", e.Err)
	case e.Notice != "":
		w.log.Warn(e.Notice, "in", e.Retry.Round(time.Millisecond))
	case e.Change != publish.Unchanged:
		w.log.Info("published the NodeFeature", "change", string(e.Change), "bytes", e.Bytes)
	}
	if len(e.Dropped) > 0 {
		w.log.Warn("features left out: they do not fit into core.maxFeatureBytes", "features", e.Dropped)
	}
}
