// Package memory reduces the memory use of a program that is almost always idle.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	usage "runtime/metrics"
)

const (
	// startGCPercent is the GOGC value during startup, when most allocations soon become garbage.
	startGCPercent = 40
	// startMemoryLimit is the soft memory limit during startup, slightly more than what a large server needs.
	startMemoryLimit = 48 << 20
	// restingGarbage is the amount of garbage that an idle worker may accumulate before it is collected. The runtime collects 1 MiB
	// before the limit, so that 1 MiB remains: enough for an event on a server with 130 kB of features, or half an hour of idle
	// time.
	restingGarbage = 2 << 20
)

// Tune configures the runtime for low memory use, unless the environment configures it: one thread runs Go code, since a worker is
// mostly idle.
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

// GiveBack returns unused memory to the system and configures garbage collection for an idle program: it collects when there is
// enough garbage and not every two minutes, which would take more CPU than everything else that an idle worker does (0.7 ms each).
// Call it when work is finished, because the memory in use at that time determines the limit.
func GiveBack() {
	debug.FreeOSMemory()
	if !tunedByUser() {
		debug.SetMemoryLimit(inUse() + restingGarbage)
		debug.SetGCPercent(-1)
	}
}

// inUse returns the memory that counts against the limit, see debug.SetMemoryLimit.
func inUse() int64 {
	s := []usage.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	usage.Read(s)
	return int64(s[0].Value.Uint64()) - int64(s[1].Value.Uint64())
}
