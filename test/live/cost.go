//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
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

// printIdle prints the CPU time of an idle worker. It starts after the worker's first poll after the last event.
func (b *bench) printIdle(ctx context.Context, idle time.Duration) error {
	if err := wait(ctx, sleepInterval+time.Second); err != nil {
		return err
	}
	requests, err := b.requests(ctx)
	if err != nil {
		return err
	}
	before := b.cpuTime()
	if err := wait(ctx, idle); err != nil {
		return err
	}
	used := b.cpuTime() - before
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\nworker idle for %s: %s of CPU, %s a minute; %d requests about NodeFeatures\n",
		idle, used, time.Duration(float64(used)/idle.Minutes()).Round(10*time.Microsecond), after-requests)
	return b.printCost("after that")
}

// requests returns the number of requests for NodeFeatures that the API server has answered, for all clients, from its metrics.
func (b *bench) requests(ctx context.Context) (int, error) {
	c, err := rest.HTTPClientFor(b.RESTConfig())
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.RESTConfig().Host+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	sum := 0
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="nodefeatures"`) {
			continue
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metrics of the API server: %w", err)
		}
		sum += int(n)
	}
	return sum, lines.Err()
}

// cpuTime returns the time in nanoseconds that threads of the worker were running, see proc_pid_schedstat(5); /proc/PID/stat has a
// resolution of 10 ms. Threads that have ended are not included, but a worker's do not end.
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
