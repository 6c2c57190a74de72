//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
)

// processes lists the measured processes.
var processes = []string{kube.APIServer, kube.Etcd, stage.Controller, stage.Webhook, stage.Extender}

// process is the resource usage of one process.
type process struct {
	pid    int
	cpu    time.Duration
	memory int64 // bytes, resident now
}

// snapshot is all measurements at one time.
type snapshot struct {
	processes map[string]process
	requests  map[string]int // "PATCH nodes/status", without those that were rejected
	rejected  int            // requests with the code 429, which clients send again
	etcd      int64          // bytes of etcd's database
}

func (s *scale) snapshot(ctx context.Context) (*snapshot, error) {
	out := &snapshot{processes: s.usage(), requests: map[string]int{}}
	return out, s.scrape(ctx, out)
}

// usage reads the resource usage of running processes.
func (s *scale) usage() map[string]process {
	out := map[string]process{}
	for _, name := range processes {
		pid, err := s.PID(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			out[name] = p
		}
	}
	return out
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all machines that Go supports.
const clockTick = 10 * time.Millisecond

// readProcess reads proc_pid_stat(5): after the name in parentheses, which can contain any character, utime, stime and rss are the
// fields 14, 15 and 24, counted from 1.
func readProcess(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return process{}, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	return process{
		pid: pid, cpu: time.Duration(number(14)+number(15)) * clockTick, memory: number(24) * int64(os.Getpagesize()),
	}, nil
}

// scrape reads the metrics of the API server.
func (s *scale) scrape(ctx context.Context, into *snapshot) error {
	return s.lines(ctx, "/metrics", into.add)
}

// liveHeap collects the garbage of the API server, and returns the size of its heap in bytes. The heap profile as text has it in a line
// of its runtime.MemStats.
func (s *scale) liveHeap(ctx context.Context) (int64, error) {
	var heap int64
	err := s.lines(ctx, "/debug/pprof/heap?gc=1&debug=1", func(line string) error {
		text, found := strings.CutPrefix(line, "# HeapAlloc = ")
		if !found {
			return nil
		}
		var err error
		heap, err = strconv.ParseInt(text, 10, 64)
		return err
	})
	if err == nil && heap == 0 {
		err = errors.New("the heap profile of the API server does not contain the size of the heap")
	}
	return heap, err
}

// lines calls a function with each line of a path of the API server.
func (s *scale) lines(ctx context.Context, path string, each func(string) error) error {
	c, err := rest.HTTPClientFor(s.RESTConfig())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.RESTConfig().Host+path, nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if err := each(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// add adds one line of metrics, if it is one of the measured ones.
func (s *snapshot) add(line string) error {
	requests, size := strings.HasPrefix(line, "apiserver_request_total{"), strings.HasPrefix(line, "apiserver_storage_size_bytes{")
	if !requests && !size {
		return nil
	}
	n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
	if err != nil {
		return fmt.Errorf("metrics of the API server: %w", err)
	}
	if size {
		s.etcd += int64(n)
		return nil
	}
	resource, code := labelOf(line, "resource"), labelOf(line, "code")
	if resource == "" {
		return nil
	}
	if sub := labelOf(line, "subresource"); sub != "" {
		resource += "/" + sub
	}
	if labelOf(line, "dry_run") != "" {
		resource += " (dry run)"
	}
	if code == strconv.Itoa(http.StatusTooManyRequests) {
		s.rejected += int(n)
	} else {
		s.requests[labelOf(line, "verb")+" "+resource] += int(n)
	}
	return nil
}

// labelOf returns the value of a label in a line of metrics. None of the values contains a quote.
func labelOf(line, name string) string {
	_, rest, ok := strings.Cut(line, ","+name+`="`)
	if !ok {
		_, rest, _ = strings.Cut(line, "{"+name+`="`)
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// since returns the usage between two snapshots. A process that was started in between counts from its start, and so do requests if
// the API server was.
func (s *snapshot) since(before *snapshot) *snapshot {
	out := &snapshot{processes: maps.Clone(s.processes), requests: map[string]int{}, rejected: s.rejected, etcd: s.etcd}
	for name, p := range out.processes {
		if b, ok := before.processes[name]; ok && b.pid == p.pid {
			p.cpu -= b.cpu
			out.processes[name] = p
		}
	}
	same := before.processes[kube.APIServer].pid == s.processes[kube.APIServer].pid
	if same {
		out.rejected -= before.rejected
	}
	for key, n := range s.requests {
		if same {
			n -= before.requests[key]
		}
		if n != 0 {
			out.requests[key] = n
		}
	}
	return out
}

const (
	// idleInterval is the interval in which an idle controller uses at most one tick of CPU time, idleSample the resolution with which
	// its beginning is found, and idleBound the maximum wait for it.
	idleInterval = 250 * time.Millisecond
	idleSample   = 25 * time.Millisecond
	idleBound    = 10 * time.Minute
)

// idleController waits until the controller uses no CPU time, and adds the time from start until then: it has evaluated all nodes.
func (s *scale) idleController(ctx context.Context, start time.Time, r *phaseResult) error {
	since, used := time.Now(), s.usage()[stage.Controller].cpu
	for time.Since(start) < idleBound {
		if err := stage.Sleep(ctx, idleSample); err != nil {
			return err
		}
		now := s.usage()[stage.Controller].cpu
		if now-used > clockTick {
			since, used = time.Now(), now
		} else if time.Since(since) >= idleInterval {
			r.Values["controllerIdleSeconds"] = since.Sub(start).Seconds()
			return nil
		}
	}
	return fmt.Errorf("the controller is busy for more than %s", idleBound)
}

const (
	// calm is how long the processes must be idle, and calmShare the fraction of one CPU that all of them together may use
	// meanwhile.
	calm      = 2 * time.Second
	calmShare = 0.15
	// calmBound is the maximum wait: an API server with thousands of watches is never completely idle.
	calmBound = 30 * time.Second
)

// quiet waits until the processes use little CPU time, so that all effects of a phase are counted with it.
func (s *scale) quiet(ctx context.Context) error {
	for end := time.Now().Add(calmBound); time.Now().Before(end); {
		before := &snapshot{processes: s.usage()}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(calm):
		}
		var used time.Duration
		for _, p := range (&snapshot{processes: s.usage()}).since(before).processes {
			used += p.cpu
		}
		if used.Seconds() < calmShare*calm.Seconds() {
			return nil
		}
	}
	return nil
}
