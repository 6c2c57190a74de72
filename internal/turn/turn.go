// Package turn provides a lock whose waiters give up when their context ends, for work that calls the API server.
package turn

import (
	"context"
	"fmt"
)

// Lock is a mutual exclusion lock. Use New to create one; the zero value is not usable.
type Lock struct{ free chan struct{} }

// New returns an unlocked Lock.
func New() Lock {
	l := Lock{make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

// Take waits for the lock and returns a function that releases it. It returns an error if the context ends first.
func (l Lock) Take(ctx context.Context) (release func(), err error) {
	select {
	case <-l.free:
		return func() { l.free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("stopped while waiting for another request: %w", ctx.Err())
	}
}
