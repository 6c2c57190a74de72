package publish

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// checkInterval is the mean interval between reads of the object's metadata without a watch.
	checkInterval = time.Hour
	// freeRepairs is the maximum number of changes by other clients within repairWindow that are reverted immediately. After that another writer
	// keeps changing the object (or the garbage collector keeps deleting it because of a missing owner), and the delay grows.
	freeRepairs  = 3
	repairWindow = time.Hour
)

// Run publishes the latest Content that arrives, and reverts changes of the object by others, until ctx is done. It never gives up:
// while the API server is unavailable the delays grow, and newer Content replaces what was to be published. It returns after
// everything that it started has ended.
func (k *keeper[C, S]) Run(ctx context.Context, contents <-chan C) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner[C, S]{
		keeper:     k,
		retry:      k.common.clock.NewTimer(forever),
		check:      k.common.clock.NewTimer(k.jittered(k.interval())),
		failures:   k.backoff(maxUnavailable),
		rejections: k.backoff(maxBackoff),
		fights:     k.backoff(maxBackoff),
		unknown:    k.backoff(maxBackoff),
		restores:   k.backoff(maxBackoff),
		sightings:  make(chan sighting),
	}
	defer r.retry.Stop()
	defer r.check.Stop()
	defer r.watching.Wait()
	defer cancel()
	for {
		select {
		case s := <-r.sightings: // first: a write that does not know of another client's change is rejected
			r.sighted(ctx, s)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return
		case c := <-contents:
			r.want = &c
			if !r.waiting() { // otherwise the pending attempt publishes it
				r.attempt(ctx)
			}
		case <-r.retry.C():
			r.attempt(ctx)
		case s := <-r.sightings:
			r.sighted(ctx, s)
		case <-r.check.C():
			r.check.Reset(k.jittered(k.interval()))
			if !r.watched {
				r.look(ctx)
			}
		}
	}
}

// forever is the duration of an unused timer.
const forever = 1 << 62

// runner is the state of one Run.
type runner[C, S any] struct {
	*keeper[C, S]
	want *C

	retry, check clock.Timer
	failures     *backoff    // after failed attempts, except for rejections
	rejections   *backoff    // after attempts that the API server rejected
	unknown      *backoff    // while the UID of the Node is unknown; it may not have registered yet
	fights       *backoff    // after repairs
	restores     *backoff    // while the controller reports missing feature sets that the object names
	fighting     bool        // a repair is due at retry
	repairs      []time.Time // within the last repairWindow

	sightings chan sighting
	watching  sync.WaitGroup
	stop      context.CancelFunc // of the watch; nil if it was not started
	node      string             // whose object is watched
	watched   bool               // whether the watch is open
}

// attempt publishes the wanted content, and schedules another attempt if that fails.
func (r *runner[C, S]) attempt(ctx context.Context) {
	r.retry.Stop()
	r.fighting = false
	if r.want == nil {
		return
	}
	_, err := r.Publish(ctx, *r.want)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		// Each has its own delay: a rejection while the API server starts must not extend the delay of a long outage.
		failures := r.failures
		if rejected(err) {
			failures = r.rejections
		}
		wait := failures.next(err)
		r.retry.Reset(wait)
		r.common.observe(Event{Err: err, Retry: wait})
		return
	}
	r.failures.reset()
	r.rejections.reset()
	if wait := r.unfinished(); wait > 0 {
		r.retry.Reset(wait)
	}
	r.follow(ctx)
}

// waiting reports whether the last attempt failed, so that another one is due.
func (r *runner[C, S]) waiting() bool { return r.failures.waiting() || r.rejections.waiting() }

// unfinished returns the delay before another attempt that is necessary although this one has succeeded; 0: none is.
func (r *runner[C, S]) unfinished() time.Duration {
	wait := r.kind.again()
	soon := func(d time.Duration) {
		if d = max(d, 1); wait == 0 || d < wait {
			wait = d
		}
	}
	if !r.identity.complete(r.common.owners) {
		soon(r.unknown.next(nil))
	}
	if len(r.kind.missing()) > 0 {
		soon(r.restores.next(nil))
	} else {
		r.restores.reset()
	}
	return wait
}

// follow makes sure that the object is watched from its current version on.
func (r *runner[C, S]) follow(ctx context.Context) {
	if r.common.poll > 0 || r.stop != nil && r.node == r.identity.Node {
		return
	}
	if r.stop != nil {
		r.stop()
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.node, r.watched = r.identity.Node, true
	wait := r.backoff(maxBackoff)
	wait.min = minReopen
	w := &watcher{client: r.client, kind: r.kind.name(), collection: r.kind.path(""), name: r.node, version: r.live.resourceVersion, wait: wait, out: r.sightings}
	r.watching.Go(func() { w.run(ctx) })
}

// sighted processes an event of the watch.
func (r *runner[C, S]) sighted(ctx context.Context, s sighting) {
	switch {
	case s.err != nil:
		if r.watched {
			r.common.observe(Event{Notice: "The watch of the " + r.kind.name() + " ended; restarting it: " + s.err.Error()})
		}
		r.watched = false
	case s.open:
		r.watched = true
		if s.lost {
			r.look(ctx)
		}
	case s.deleted:
		r.watched = true
		if s.meta.resourceVersion != "" && r.observeDeleted(s.meta) {
			r.repair(ctx, "the "+r.kind.name()+" was deleted")
		}
	default:
		r.watched = true
		missed := len(r.kind.missing())
		if r.observe(s.meta) {
			r.repair(ctx, "the "+r.kind.name()+" was changed")
		} else if missed == 0 && len(r.kind.missing()) > 0 && !r.waiting() {
			r.common.observe(Event{Notice: "the controller misses feature sets of this node; creating them again"})
			r.attempt(ctx)
		}
	}
}

// look compares the version of the object with the last written one.
func (r *runner[C, S]) look(ctx context.Context) {
	if r.live == nil || r.waiting() {
		r.unsure = true // the next attempt reads the object, or fails if it has changed
		return
	}
	meta, err := r.client.metadata(ctx, r.kind.path(r.identity.Node))
	switch {
	case hasCode(err, http.StatusNotFound):
		r.live, r.absent = nil, true
		r.repair(ctx, "the "+r.kind.name()+" was deleted")
	case ctx.Err() != nil:
	case err != nil:
		r.unsure = true
		wait := r.failures.next(err)
		r.retry.Reset(wait)
		r.common.observe(Event{Notice: "Cannot read the " + r.kind.name() + ": " + err.Error(), Retry: wait})
	case r.observe(meta):
		r.repair(ctx, "the "+r.kind.name()+" was changed")
	}
}

// repair publishes again: the first times immediately, later with a growing delay. It leaves that to an attempt that is due anyway:
// the change can be the worker's own, if the response to its write was lost.
func (r *runner[C, S]) repair(ctx context.Context, why string) {
	if r.waiting() {
		return
	}
	now := r.common.clock.Now()
	for len(r.repairs) > 0 && now.Sub(r.repairs[0]) > repairWindow {
		r.repairs = r.repairs[1:]
	}
	if len(r.repairs) < freeRepairs {
		r.fights.reset()
		r.repairs = append(r.repairs, now)
		r.common.observe(Event{Notice: why + " by another client; reading it again"})
		r.attempt(ctx)
		return
	}
	if r.fighting {
		return
	}
	wait := r.fights.next(nil)
	r.fighting = true
	r.common.observe(Event{Notice: why + " by another client again; check whether another program manages it", Retry: wait})
	r.repairs = append(r.repairs[1:], now)
	r.retry.Reset(wait)
}

// interval returns the mean interval between reads of the object's metadata without a watch.
func (k *keeper[C, S]) interval() time.Duration { return cmp.Or(k.common.poll, checkInterval) }

func (k *keeper[C, S]) backoff(most time.Duration) *backoff {
	return &backoff{clock: k.common.clock, rand: k.common.rand, max: most}
}

func (k *keeper[C, S]) jittered(mean time.Duration) time.Duration {
	return time.Duration((0.5 + k.common.rand()) * float64(mean))
}
