package flap

import (
	"sync"
	"time"
)

// A key that another client changes repeatedly is corrected CorrectionLimit times at once, and then after pauses that grow from FirstPause to
// LongestPause: two competing writers would otherwise move pods and load the API server indefinitely. An accidental edit, or a kubelet that
// starts, is corrected immediately. Corrections are forgotten after CorrectionWindow without one.
const (
	CorrectionLimit  = 3
	FirstPause       = time.Minute
	LongestPause     = 10 * time.Minute
	CorrectionWindow = time.Hour
)

// Corrections records which keys of one node were corrected recently. It is not safe for concurrent use.
type Corrections map[string]Correction

// Correction is the value to which a key was corrected, how often, and when last.
type Correction struct {
	Value string
	Count int
	Last  time.Time
}

// Of returns how often a key was corrected to this value recently.
func (c Corrections) Of(key, value string) int {
	if known, ok := c[key]; ok && known.Value == value {
		return known.Count
	}
	return 0
}

// Held returns until when to leave a key alone that was corrected too often; the zero time: it was not. A new value does not count as a
// correction.
func (c Corrections) Held(key, value string) time.Time {
	count := c.Of(key, value)
	if count < CorrectionLimit {
		return time.Time{}
	}
	pause := FirstPause
	for i := CorrectionLimit; i < count && pause < LongestPause; i++ {
		pause *= 2
	}
	return c[key].Last.Add(min(pause, LongestPause))
}

// Add records that a key was corrected to a value.
func (c Corrections) Add(key, value string, now time.Time) {
	c[key] = Correction{Value: value, Count: c.Of(key, value) + 1, Last: now}
}

// Expire removes corrections that are older than the window.
func (c Corrections) Expire(now time.Time) {
	for key, known := range c {
		if now.Sub(known.Last) > CorrectionWindow {
			delete(c, key)
		}
	}
}

// TurnInterval is the time between two nodes of which contested keys are written again: ten nodes a second. Another program that changes the
// keys of all nodes costs the API server no more than this.
const TurnInterval = 100 * time.Millisecond

// Turns gives out the times at which contested keys of nodes are written again. It is safe for concurrent use.
type Turns struct {
	mu   sync.Mutex
	next time.Time
}

// Take returns the next free time, which is not before now.
func (t *Turns) Take(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := now
	if t.next.After(now) {
		turn = t.next
	}
	t.next = turn.Add(TurnInterval)
	return turn
}
