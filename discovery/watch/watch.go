// Package watch tells which sources of a running host to run again, because something they read has changed.
package watch

import (
	"context"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// Everything stands for all sources: events were lost, so anything may have changed.
const Everything = "*"

// Target is a directory of this process whose files matter to a source. It need not exist yet.
type Target struct {
	Path string
	// Source is what is announced.
	Source string
	// Deep includes the directories in it, not those below.
	Deep bool
}

const (
	// quiet is how long nothing must happen until a burst of events is taken to be over: a device that is plugged in sends
	// some dozens within milliseconds.
	quiet = 50 * time.Millisecond
	// patience is how long a burst may last until what has happened so far is announced all the same.
	patience = 500 * time.Millisecond
)

// Debounce gathers the names that come in, and hands them out, sorted and each once, when nothing more has come for a
// moment. It returns when ctx is done. While the receiver is busy it goes on gathering.
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
