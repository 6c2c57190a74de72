// Package watch detects which sources of a running host must run again because something that they read has changed.
package watch

import (
	"context"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// Everything means all sources: events were lost, so anything could have changed.
const Everything = "*"

// Target is a directory in this process's file system whose files a source reads. It need not exist yet.
type Target struct {
	Path string
	// Source is the name to announce.
	Source string
	// Deep includes its subdirectories (one level).
	Deep bool
}

const (
	// quiet is the time without events after which a burst is considered complete: a device that is plugged in sends dozens of
	// events within milliseconds.
	quiet = 50 * time.Millisecond
	// patience is the maximum duration of a burst before its events are announced.
	patience = 500 * time.Millisecond
)

// Debounce collects incoming names, and sends them, sorted and without duplicates, after a short time without further events. It
// returns when ctx is done. While the receiver is busy it keeps collecting.
func Debounce(ctx context.Context, c clock.WithTicker, in <-chan string, out chan<- []string) {
	var names []string
	var due <-chan time.Time
	var ready chan<- []string
	var started time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-in:
			if len(names) == 0 {
				started = c.Now()
			}
			if i, found := slices.BinarySearch(names, name); !found {
				names = slices.Insert(names, i, name)
			}
			if ready == nil {
				due = c.After(min(quiet, patience-c.Since(started)))
			}
		case <-due:
			due, ready = nil, out
		case ready <- slices.Clone(names):
			names, ready = nil, nil
		}
	}
}
