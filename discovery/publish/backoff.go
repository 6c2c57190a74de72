package publish

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

const (
	// minBackoff is the maximum delay after the first failure.
	minBackoff = time.Second
	// maxBackoff is the maximum delay after further failures, where no label waits for the next attempt, or where it will fail until
	// an administrator acts.
	maxBackoff = 5 * time.Minute
	// maxUnavailable is the maximum delay of a write after further failures while the API server is unavailable or overloaded. All
	// facts are published within a minute of its return, even if an attempt to connect is still waiting for its timeout. With full
	// jitter, n workers that all have something to publish send n/22.5 requests a second, and no more after the return, when each needs
	// one: 667 with 15,000 workers, less than half of the 1,500 Lease renewals of their kubelets. An overloaded API server rejects
	// most of them at little cost.
	maxUnavailable = 45 * time.Second
	// minReopen is the maximum delay before a watch that has ended is opened again. All watches end when an API server stops: 15,000
	// workers open 500 a second, and an API server that starts on two cores rejects most of 15,000 within one. Meanwhile only a change of
	// the NodeFeature by another client is noticed later.
	minReopen = 30 * time.Second
)

// backoff doubles the maximum delay after each failure, with full jitter: a random delay between zero and the maximum spreads the
// workers of a cluster evenly.
type backoff struct {
	clock clock.WithTicker
	rand  func() float64
	min   time.Duration // maximum delay after the first failure; 0: minBackoff
	max   time.Duration
	bound time.Duration
}

func (b *backoff) reset() { b.bound = 0 }

// waiting reports whether the last attempt failed.
func (b *backoff) waiting() bool { return b.bound > 0 }

// next returns the next delay, at least the one that the server requested.
func (b *backoff) next(err error) time.Duration {
	b.bound = max(min(2*b.bound, b.max), cmp.Or(b.min, minBackoff))
	wait := time.Duration(b.rand() * float64(b.bound))
	var status *StatusError
	if errors.As(err, &status) && status.RetryAfter > 0 {
		wait += status.RetryAfter
	}
	return wait
}

func (b *backoff) sleep(ctx context.Context, err error) {
	t := b.clock.NewTimer(b.next(err))
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}

// rejected reports whether the API server rejects a request, and an administrator has to act. An API server that starts can reject
// requests too, until it knows the roles and the CustomResourceDefinitions.
func rejected(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) || status.Code/100 != 4 {
		return false
	}
	switch status.Code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return true
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
