package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryPercent is the share of its cgroup's memory that the program takes before it collects garbage more often than it has to. The rest
// is for what the runtime does not count: stacks of the system, and pages of the program's file.
const memoryPercent = 80

// limitMemory makes the garbage collector respect the memory limit of the container, unless the environment says otherwise. It never
// takes more than half of the CPU for that: the runtime rather exceeds the limit.
func limitMemory() {
	if limit := cgroupLimit("/"); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 100 * memoryPercent)
	}
}

// cgroupLimit returns the memory limit of this process in bytes; 0: there is none. A container sees its own cgroup at the root; a
// process of the host reads where its own is. Limits of cgroups above are not read: Kubernetes limits containers.
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
			// "max" is not a number. Version 1 writes a number larger than any memory for "no limit".
			limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			if err != nil || limit > 1<<50 {
				return 0
			}
			return limit
		}
	}
	return 0
}
