package flap

import "time"

// A key that another client changes repeatedly is corrected CorrectionLimit times within CorrectionWindow and then left alone for
// the rest of it: two competing writers would otherwise move pods and load the API server indefinitely. An accidental edit, or a
// kubelet that starts, is corrected immediately.
const (
	CorrectionLimit  = 3
	CorrectionWindow = time.Hour
)

// Corrections records which keys of one node were corrected recently. It is not safe for concurrent use.
type Corrections map[string]Correction

// Correction is the value to which a key was corrected, and when, oldest first.
type Correction struct {
	Value string
	Times []time.Time
}

// About reports whether a key was recently corrected to this value.
func (c Corrections) About(key, value string) bool {
	known, ok := c[key]
	return ok && known.Value == value
}

// Held reports whether a key has been corrected too often, and how long to leave it alone. A new value does not count as a
// correction.
func (c Corrections) Held(key, value string, now time.Time) (time.Duration, bool) {
	known := c[key]
	if !c.About(key, value) || len(known.Times) < CorrectionLimit {
		return 0, false
	}
	left := CorrectionWindow - now.Sub(known.Times[0])
	return left, left > 0
}

// Add records that a key was corrected to a value.
func (c Corrections) Add(key, value string, now time.Time) {
	known := Correction{Value: value}
	if c.About(key, value) {
		known = c[key]
	}
	known.Times = append(known.Times, now)
	known.Times = known.Times[max(0, len(known.Times)-CorrectionLimit):]
	c[key] = known
}

// Expire removes corrections that are older than the window.
func (c Corrections) Expire(now time.Time) {
	for key, known := range c {
		if now.Sub(known.Times[len(known.Times)-1]) > CorrectionWindow {
			delete(c, key)
		}
	}
}
