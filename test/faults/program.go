//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// program is a running program of Assay. Its methods are safe for concurrent use.
type program struct {
	stage.Addresses
	world *world
	name  string

	mu    sync.Mutex
	down  bool // a fault ended it, and will start it again
	exits int
}

// supervise starts the program again when it ends by itself, as a kubelet does.
func (p *program) supervise(ctx context.Context) {
	for {
		ended, err := p.world.Ended(p.name)
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
		p.mu.Lock()
		if !p.down && p.ended() && ctx.Err() == nil {
			p.exits++
			p.world.say("  %s ended by itself, and is started again; its last words: %s", p.name, lastLine(p.world.Log(p.name)))
			if err := p.world.Restart(ctx, p.name); err != nil {
				p.world.say("  %v", err)
			}
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartDelay):
		}
	}
}

// ended reports whether the program is not running.
func (p *program) ended() bool {
	ended, err := p.world.Ended(p.name)
	if err != nil {
		return true
	}
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// restartDelay is the time between two looks whether a program has ended.
const restartDelay = 100 * time.Millisecond

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// end ends the program by a function until it is started.
func (p *program) end(by func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	return by()
}

// start starts the program after end.
func (p *program) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	return p.world.Restart(ctx, p.name)
}

// ready waits until the program reports that it is ready.
func (p *program) ready(ctx context.Context) error {
	return cluster.WaitFor(ctx, p.name+" is ready", cluster.Answers(p.Health+"/readyz"))
}

// scrapeTimeout is the timeout of a request to a program, which may be stopped.
const scrapeTimeout = 2 * time.Second

// gauge returns the value of a metric without labels, or of its first series.
func (p *program) gauge(ctx context.Context, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	text, err := cluster.Get(ctx, p.Metrics)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			var value float64
			_, err := fmt.Sscanf(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:], "%g", &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("%s: no metric %s", p.Metrics, name)
}

// leader returns the controller that holds the Lease, "" if none does.
func (w *world) leader(ctx context.Context) string {
	for _, name := range controllers {
		if is, err := w.programs[name].gauge(ctx, "leader_election_master_status"); err == nil && is == 1 {
			return name
		}
	}
	return ""
}

// waitLeader waits until a controller holds the Lease.
func (w *world) waitLeader(ctx context.Context) (name string, err error) {
	err = cluster.WaitFor(ctx, "a leader", func(ctx context.Context) error {
		if name = w.leader(ctx); name == "" {
			return fmt.Errorf("neither of %s", strings.Join(controllers, ", "))
		}
		return nil
	})
	return name, err
}
