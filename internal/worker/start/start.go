// Package start decides when a worker that has just started publishes for the first time, and with what.
package start

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/publish"
)

const (
	// Patience is how long a worker that has started waits for sources that have not answered. On a busy machine each answers within
	// seconds; one that hangs on a device may never answer, and must not keep the others from being published.
	Patience = time.Minute
	// unreadPatience is how long it also waits if a feature set with the features of such a source has been deleted or replaced. The controller
	// keeps the node's features meanwhile, and the worker of an equal node, or the source, can bring the set back.
	unreadPatience = 10 * time.Minute
	// retry is the time after which a worker tries again to read what its predecessor published.
	retry = 10 * time.Second
)

// Nothing names no source: only sources that depend on others run, and the results of slow ones are taken.
var Nothing = []string{""}

// Start is the time of a worker until it publishes for the first time. It is not safe for concurrent use.
type Start struct {
	log     *slog.Logger
	began   time.Time
	until   time.Time // when to publish without the sources that have not answered; also when to try again after an error
	waiting string    // the sources that were logged
	over    bool
	err     error // why the earlier features could not be read
}

// New returns the Start of a worker that starts now.
func New(log *slog.Logger) *Start {
	now := time.Now()
	return &Start{log: log, began: now, until: now.Add(Patience)}
}

// Over reports whether the worker has published, or is about to.
func (s *Start) Over() bool { return s.over }

// Err returns why the earlier features could not be read at the last attempt; nil if they could, or were not needed.
func (s *Start) Err() error { return s.err }

// Waiting returns the sources that the worker waits for, separated by commas; empty if it does not wait.
func (s *Start) Waiting() string {
	if s.over {
		return ""
	}
	return s.waiting
}

// WaitAtMost changes how long the worker waits for sources from now on.
func (s *Start) WaitAtMost(d time.Duration) { s.until = time.Now().Add(d) }

// Wait returns the time until something has to be done without an event; 0 means that there is nothing.
func (s *Start) Wait() time.Duration {
	if s.over || s.waiting == "" && s.err == nil {
		return 0
	}
	return max(time.Until(s.until), 1)
}

// Stored returns what an earlier worker of this node published; nil if there is nothing. [publish.Publisher.Stored] implements it.
type Stored func(ctx context.Context) (*publish.Stored, error)

// Settle reports whether a report of a Runner can be published, and returns it. A worker that has just started waits for each source,
// because without a source's features the node would lose labels. Of the sources that do not answer in time, or that fail, it adds what an
// earlier worker found since the node booted. Without a function that returns what is stored, it adds nothing.
func (s *Start) Settle(ctx context.Context, runner *discovery.Runner, r *discovery.Report, stored Stored) (*discovery.Report, bool) {
	if s.over {
		return r, true
	}
	if missing := strings.Join(r.Missing, ", "); missing != "" && time.Now().Before(s.until) {
		if missing != s.waiting {
			s.log.Warn("Waiting for sources before the first publication", "sources", missing, "for", time.Until(s.until).Round(time.Second))
		}
		s.waiting = missing
		return r, false
	}
	if len(r.Unfound) > 0 && stored != nil {
		kept, err := s.restore(ctx, runner, bootOf(&r.Features), stored)
		if s.err = err; err != nil {
			s.until = time.Now().Add(retry)
			s.log.Warn("Cannot read the published features, which contain those of sources that did not answer; retrying", "sources", r.Unfound, "in", retry, "error", err)
			return r, false
		}
		s.log.Warn("Publishing without a result of some sources", "sources", r.Unfound, "keptEarlierFeatures", kept)
		r = runner.Run(ctx, Nothing...)
	}
	s.over = true
	return r, true
}

// restore gives the sources without a result the features that an earlier worker published since the node booted, and reports whether
// there are any. Features of another boot may be of devices that are gone.
func (s *Start) restore(ctx context.Context, runner *discovery.Runner, boot string, read Stored) (bool, error) {
	stored, err := read(ctx)
	if stored == nil || err != nil {
		return false, err
	}
	if boot == "" || bootOf(&stored.Features) != boot {
		return false, nil
	}
	if err := errors.Join(stored.Unread...); err != nil && time.Since(s.began) < unreadPatience {
		return false, err
	}
	for _, err := range stored.Unread {
		s.log.Warn("Cannot read a part of the published features", "error", err)
	}
	runner.Restore(&stored.Features, stored.Labels)
	return true, nil
}

// bootOf returns the boot that features are of; empty: unknown.
func bootOf(f *nfdv1alpha1.Features) string {
	return f.Attributes[nfdv1alpha1.BootFeature].Elements[nfdv1alpha1.BootElement]
}
