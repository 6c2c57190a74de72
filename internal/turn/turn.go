// Package turn holds a lock for work that asks the API server: a caller that waits for its turn gives up when its context ends.
package turn

import (
	"context"
	"fmt"
)

// Lock is held by one caller at a time. The zero value cannot be used; New returns one.
type Lock struct{ free chan struct{} }

// New returns a lock that no one holds.
func New() Lock {
	l := Lock{make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

// Take waits for the lock and returns what releases it. If the context ends first it returns an error.
func (l Lock) Take(ctx context.Context) (release func(), err error) {
	select {
	case <-l.free:
		return func() { l.free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("stopped while waiting for another request: %w", ctx.Err())
	}
}
