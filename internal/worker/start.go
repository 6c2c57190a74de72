package worker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/system"
)

const (
	// startPatience is how long a worker that has started waits for sources that have not answered. On a busy machine each answers
	// within seconds; one that hangs on a device may never answer, and must not keep the others from being published.
	startPatience = time.Minute
	// startRetry is the time after which a worker tries again to read what its predecessor published.
	startRetry = 10 * time.Second
)

// start is the time of a worker until it publishes for the first time.
type start struct {
	until   time.Time // when to publish without the sources that have not answered; also when to try again after an error
	waiting string    // the sources that were logged
	over    bool
	err     error // why the earlier features could not be read
}

// keep gives the sources of a new configuration what was found with the previous one: none of them has answered yet, and some may be
// slow. If nothing has been published yet, what the new configuration disables is removed without further waiting.
func (w *Worker) keep() {
	if w.start.over {
		w.runner.Restore(&w.last.Features, w.last.Labels)
	} else if w.start.waiting != "" {
		w.start.until = time.Now()
	}
}

// wait returns the time until something has to be done without an event; 0 means that there is nothing.
func (w *Worker) wait() time.Duration {
	if w.start.over || w.start.waiting == "" && w.start.err == nil {
		return w.release
	}
	return max(time.Until(w.start.until), 1)
}

// settle reports whether a report can be published. A worker that has just started waits for each source, because without a source's
// features the node would lose labels. Of the sources that do not answer in time, or that fail, it adds what an earlier worker found
// since the node booted.
func (w *Worker) settle(ctx context.Context, r *discovery.Report) (*discovery.Report, bool) {
	if w.start.over {
		return r, true
	}
	if missing := strings.Join(r.Missing, ", "); missing != "" && time.Now().Before(w.start.until) {
		if missing != w.start.waiting {
			w.log.Warn("Waiting for sources before the first publication", "sources", missing, "for", time.Until(w.start.until).Round(time.Second))
		}
		w.start.waiting = missing
		w.metrics.waitFor(missing)
		return r, false
	}
	if len(r.Unfound) > 0 && !w.config.NoPublish {
		kept, err := w.restore(ctx)
		if w.start.err = err; err != nil {
			w.start.until = time.Now().Add(startRetry)
			w.log.Warn("Cannot read the published features, which contain those of sources that did not answer; retrying", "sources", r.Unfound, "in", startRetry, "error", err)
			return r, false
		}
		w.log.Warn("Publishing without a result of some sources", "sources", r.Unfound, "keptEarlierFeatures", kept)
		r = w.runner.Run(ctx, nothing...)
	}
	w.start.over = true
	w.metrics.waitFor("")
	return r, true
}

// restore gives the sources without a result the features that an earlier worker published since the node booted, and reports whether
// there are any. Features of another boot may be of devices that are gone.
func (w *Worker) restore(ctx context.Context) (bool, error) {
	p, err := w.publisher()
	if err != nil {
		return false, err
	}
	stored, err := p.Stored(ctx)
	if stored == nil || err != nil {
		return false, err
	}
	boot := system.BootID(w.host)
	if boot == "" || stored.Features.Attributes[system.BootFeature].Elements[system.BootElement] != boot {
		return false, nil
	}
	for _, err := range stored.Unread {
		w.log.Warn("Cannot read a part of the published features", "error", err)
	}
	w.runner.Restore(&stored.Features, stored.Labels)
	return true, nil
}

// first discovers until the result can be published.
func (w *Worker) first(ctx context.Context) (publish.Content, error) {
	names := []string(nil)
	for {
		c, ok := w.discover(ctx, false, names...)
		if ok || w.start.err != nil {
			return c, w.start.err
		}
		names = slices.Clone(nothing)
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-w.runner.Returned():
		case <-time.After(w.wait()):
		}
	}
}
