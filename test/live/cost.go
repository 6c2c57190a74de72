//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// printCost prints the memory of the worker, see proc_pid_status(5).
func (b *bench) printCost(when string) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.worker))
	if err != nil {
		return err
	}
	kB := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		kB[name] = strings.TrimSpace(strings.TrimSuffix(value, "kB"))
	}
	fmt.Printf("\nworker %s: %s kB at most, %s kB now: %s of its file, %s of its own; %s of CPU so far\n",
		when, kB["VmHWM"], kB["VmRSS"], kB["RssFile"], kB["RssAnon"], b.cpuTime())
	return nil
}

// printIdle prints what the worker does while nothing happens.
func (b *bench) printIdle(ctx context.Context, idle time.Duration) error {
	before := b.cpuTime()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idle):
	}
	used := b.cpuTime() - before
	fmt.Printf("\nworker idle for %s: %s of CPU, %s a minute\n", idle, used, time.Duration(float64(used)/idle.Minutes()).Round(10*time.Microsecond))
	return b.printCost("after that")
}

// cpuTime is how long threads of the worker were on a CPU, see proc_pid_schedstat(5): in nanoseconds, where /proc/PID/stat
// counts ticks of 10 ms. Threads that have ended are left out, but a worker's do not end.
func (b *bench) cpuTime() time.Duration {
	var sum time.Duration
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", b.worker))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		first, _, _ := strings.Cut(string(data), " ")
		n, _ := strconv.ParseInt(first, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// childNamed returns the process ID of the child of this process that runs a program of that name.
func childNamed(name string) (int, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range stats {
		status, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if bytes.Contains(status, []byte("Name:\t"+name+"\n")) && bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no child of this process is called %s", name)
}
