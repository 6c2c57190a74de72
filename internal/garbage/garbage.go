// Package garbage collects the garbage of a small heap seldom, and that of a large one as often as its size allows.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// limit is the amount of garbage in bytes that may accumulate between two collections. The caches of a large fleet have more than that
// themselves.
const limit = 64 << 20

// percents are the GOGC values of a small and of a huge heap.
type percents struct{ small, huge int }

// Limit sets GOGC for the size of the heap, now and after each collection: small, but less if that were more garbage than the limit, and
// at least huge. It does nothing if the environment sets GOGC.
func Limit(small, huge int) {
	if os.Getenv("GOGC") == "" {
		adjust(percents{small, huge})
	}
}

func adjust(p percents) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(p.of(live[0].Value.Uint64()))
	runtime.AddCleanup(&struct{ *byte }{}, adjust, p) // nothing refers to it: it is gone after the next collection
}

// of returns the GOGC value of a heap with live bytes.
func (p percents) of(live uint64) int {
	return max(p.huge, int(min(uint64(p.small), limit*100/max(live, 1)))) //nolint:gosec // p.small at most
}
