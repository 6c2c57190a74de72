package publish

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/utils/clock"
)

const (
	// minBackoff is the first bound of the wait after a failure.
	minBackoff = time.Second
	// maxBackoff is the last. Thousands of workers that wait for the same API server must not come back at once, and five
	// minutes of labels that are out of date harm nobody.
	maxBackoff = 5 * time.Minute
)

// backoff waits longer after each failure, with full jitter: any time between nothing and the bound, so that the workers of
// a cluster spread evenly over it.
type backoff struct {
	clock clock.WithTicker
	rand  func() float64
	bound time.Duration
}

func (b *backoff) reset() { b.bound = 0 }

// waiting reports whether the last attempt failed.
func (b *backoff) waiting() bool { return b.bound > 0 }

// next returns how long to wait now. A server that says how long gets at least that.
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
