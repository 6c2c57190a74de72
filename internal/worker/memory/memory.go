// Package memory keeps a program small that is idle nearly always.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	usage "runtime/metrics"
)

const (
	// startGCPercent trades a little CPU for memory while a start makes most of what it allocates garbage at once.
	startGCPercent = 40
	// startMemoryLimit makes the collector work harder beyond what a large server needs; it refuses nothing.
	startMemoryLimit = 48 << 20
	// restingGarbage is the memory beyond that at rest that a worker may take before it collects garbage. The runtime's collector stops
	// 1 MiB before a limit, so one is left to allocate: the work for an event of a server with 130 kB of features, or half an
	// hour of rest.
	restingGarbage = 2 << 20
)

// Tune makes the runtime small, unless the environment says otherwise: one thread runs Go code, since a worker is idle.
func Tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if tunedByUser() {
		return
	}
	debug.SetGCPercent(startGCPercent)
	debug.SetMemoryLimit(startMemoryLimit)
}

func tunedByUser() bool { return os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" }

// GiveBack returns to the system what work has left behind, and lets the runtime rest: from now on it collects garbage when
// there is some, and not every two minutes, which would take more CPU than all else that an idle worker does (0.7 ms each).
// The caller has just finished something, so that what is in use now is what rest needs.
func GiveBack() {
	debug.FreeOSMemory()
	if !tunedByUser() {
		debug.SetMemoryLimit(inUse() + restingGarbage)
		debug.SetGCPercent(-1)
	}
	ForgetCode()
}

// inUse is the memory that counts against the limit, see debug.SetMemoryLimit.
func inUse() int64 {
	s := []usage.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	usage.Read(s)
	return int64(s[0].Value.Uint64()) - int64(s[1].Value.Uint64())
}
