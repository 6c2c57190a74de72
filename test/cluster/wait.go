//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// patience is the timeout of WaitFor: many times what any condition takes, even on a loaded machine.
	patience = 2 * time.Minute
	// pollInterval is short enough for fast tests, and long enough to cost little.
	pollInterval = 25 * time.Millisecond
)

// WaitFor waits until the condition returns nil. It gives up after two minutes, or when ctx ends; the error names the condition and
// wraps its last error.
func WaitFor(ctx context.Context, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %s", patience))
	defer cancel()
	if err := poll(ctx, condition); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// permanentError ends a poll at once.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// poll calls the condition until it returns nil or a permanentError, or until ctx ends.
func poll(ctx context.Context, condition func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		var permanent permanentError
		if errors.As(err, &permanent) {
			return permanent.error
		}
		if ctx.Err() == nil || last == nil { // the end of the context says nothing about the condition
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// Get returns the body of a response. A status other than 200 is an error that includes the body.
func Get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// Answers returns a condition for WaitFor: that Get succeeds.
func Answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, httpTimeout)
		defer cancel()
		_, err := Get(ctx, url)
		return err
	}
}
