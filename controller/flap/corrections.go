package flap

import "time"

// A key that another client changes repeatedly is corrected CorrectionLimit times within CorrectionWindow and then left alone for
// the rest of it: two competing writers would otherwise move pods and load the API server indefinitely. An accidental edit, or a
// kubelet that starts, is corrected immediately.
const (
	CorrectionLimit  = 3
	CorrectionWindow = time.Hour
)

// Corrections records which keys of one node were corrected recently, and to which value. The zero value is ready to use. It is not
// safe for concurrent use.
type Corrections struct{ keys map[string]correction }

type correction struct {
	value string
	times times
}

// Any reports whether a key was recently corrected.
func (c *Corrections) Any() bool { return len(c.keys) > 0 }

// About reports whether a key was recently corrected to this value.
func (c *Corrections) About(key, value string) bool {
	known, ok := c.keys[key]
	return ok && known.value == value
}

// Held reports whether a key has been corrected too often, and how long to leave it alone. A new value does not count as a
// correction.
func (c *Corrections) Held(key, value string, now time.Time) (time.Duration, bool) {
	known := c.keys[key]
	if !c.About(key, value) || len(known.times) < CorrectionLimit {
		return 0, false
	}
	left := CorrectionWindow - now.Sub(known.times[0])
	return left, left > 0
}

// Add records that a key was corrected to a value.
func (c *Corrections) Add(key, value string, now time.Time) {
	known := correction{value: value}
	if c.About(key, value) {
		known = c.keys[key]
	}
	known.times = known.times.add(now, CorrectionLimit)
	if c.keys == nil {
		c.keys = map[string]correction{}
	}
	c.keys[key] = known
}

// Expire removes corrections that are older than the window.
func (c *Corrections) Expire(now time.Time) {
	for key, known := range c.keys {
		if now.Sub(known.times.last()) > CorrectionWindow {
			delete(c.keys, key)
		}
	}
}
