package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/assay-project/assay/internal/garbage"
)

// memoryPercent is the percentage of the memory limit at which garbage collection becomes more frequent. The rest is for memory
// that the runtime does not count: stacks of system threads and pages of the executable.
const memoryPercent = 80

const (
	// gcPercent is the GOGC value while the heap is small. While nodes are labeled, a third of the CPU time of a controller would be
	// garbage collection with half of it. An idle manager has no garbage: see giveBack.
	gcPercent = 100
	// webhookGCPercent is the GOGC value of the webhook while the heap is small. A review creates two megabytes of garbage while little
	// memory is in use; collecting it half as often reduces CPU time by a sixth.
	webhookGCPercent = 200
	// minGCPercent is the minimum GOGC value, so that a huge heap is not collected all the time.
	minGCPercent = 20
)

const (
	// restInterval is the interval in which an idle manager allocates at most restBytes. Health checks and leases take some kilobytes.
	restInterval = 5 * time.Second
	restBytes    = 1 << 20
	// restGarbage is the number of bytes that were allocated since memory was given back, for which it is given back again: collecting
	// the garbage reads the whole heap.
	restGarbage = 16 << 20
)

// giveBack returns unused memory to the system whenever the manager becomes idle, until the context ends: after the start, or after a
// change of many nodes, garbage is more than half of its memory.
func giveBack(ctx context.Context) {
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	tick := time.NewTicker(restInterval)
	defer tick.Stop()
	for before, given := uint64(0), uint64(0); ; {
		metrics.Read(allocated)
		now := allocated[0].Value.Uint64()
		if rests(before, given, now) {
			debug.FreeOSMemory()
			given = now
		}
		before = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// rests reports whether memory should be given back: before, given and now are the bytes that were allocated until the last check, until
// memory was given back, and until now.
func rests(before, given, now uint64) bool { return now-before < restBytes && now-given >= restGarbage }

// limitMemory limits garbage, and sets the soft memory limit of the Go runtime from the memory limit of the container, unless the
// environment sets GOGC or GOMEMLIMIT.
// Garbage collection uses at most half of the CPU; beyond that, the runtime exceeds the soft limit.
func limitMemory(command string) {
	percent := gcPercent
	if command == "webhook" {
		percent = webhookGCPercent
	}
	garbage.Limit(percent, minGCPercent)
	if limit := cgroupLimit("/"); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 100 * memoryPercent)
	}
}

// cgroupLimit returns the memory limit of the process in bytes, or 0 if there is none. A container sees its cgroup at the root, a
// process on the host in a subdirectory. Parent cgroups are ignored, because Kubernetes sets limits on containers.
func cgroupLimit(root string) int64 {
	var own string
	if data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(data)) {
			id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			controllers, path, _ := strings.Cut(rest, ":")
			if id == "0" && own == "" || controllers == "memory" {
				own = path
			}
		}
	}
	mounted := filepath.Join(root, "sys/fs/cgroup")
	for _, file := range []string{
		filepath.Join(mounted, own, "memory.max"), filepath.Join(mounted, "memory.max"), // version 2
		filepath.Join(mounted, "memory", own, "memory.limit_in_bytes"), filepath.Join(mounted, "memory/memory.limit_in_bytes"),
	} {
		if data, err := os.ReadFile(file); err == nil {
			// "max" is not a number. Version 1 represents no limit by a number that is larger than any memory.
			limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			if err != nil || limit > 1<<50 {
				return 0
			}
			return limit
		}
	}
	return 0
}
