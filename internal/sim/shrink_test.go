package sim

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
)

// attempts is the maximum number of schedules that are run to find a shorter one.
const attempts = 200

// shrink removes choices from a failing schedule as long as it still fails, and returns the shortest one.
func shrink(t *testing.T, of *tape, failing []uint16) []uint16 {
	tries := 0
	for size := len(failing) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(failing); {
			if tries++; tries > attempts {
				return failing
			}
			shorter := slices.Delete(slices.Clone(failing), at, at+size)
			if w := run(t, of.again(shorter), logr.Discard()); len(w.violations) > 0 {
				failing = shorter
			} else {
				at += size
			}
		}
	}
	return failing
}
