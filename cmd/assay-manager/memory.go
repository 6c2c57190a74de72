package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryPercent is the percentage of the memory limit at which garbage collection becomes more frequent. The rest is for memory
// that the runtime does not count: stacks of system threads and pages of the executable.
const memoryPercent = 80

// gcPercent is the GOGC value. Most of the heap are caches that grow with the number of nodes: with the default of 100, as much garbage as
// that would be kept, while collecting it twice as often takes little, because a manager is mostly idle.
const gcPercent = 50

// limitMemory sets GOGC to gcPercent, and the soft memory limit of the Go runtime from the memory limit of the container, unless the
// environment sets them.
// Garbage collection uses at most half of the CPU; beyond that, the runtime exceeds the soft limit.
func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
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
