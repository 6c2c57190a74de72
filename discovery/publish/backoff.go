package publish

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/utils/clock"
)

const (
	// minBackoff is the maximum delay after the first failure.
	minBackoff = time.Second
	// maxBackoff is the maximum delay after further failures. Thousands of workers that wait for the same API server must not retry
	// at the same time, and labels can be out of date for five minutes.
	maxBackoff = 5 * time.Minute
)

// backoff doubles the maximum delay after each failure, with full jitter: a random delay between zero and the maximum spreads the
// workers of a cluster evenly.
type backoff struct {
	clock clock.WithTicker
	rand  func() float64
	bound time.Duration
}

func (b *backoff) reset() { b.bound = 0 }

// waiting reports whether the last attempt failed.
func (b *backoff) waiting() bool { return b.bound > 0 }

// next returns the next delay, at least the one that the server requested.
func (b *backoff) next(err error) time.Duration {
	b.bound = max(min(2*b.bound, maxBackoff), minBackoff)
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

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
