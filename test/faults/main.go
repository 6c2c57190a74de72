//go:build linux

// Command faults disturbs Assay on a real control plane, and checks its promises.
//
// It runs two API servers on one etcd, two controllers, webhook and extender, and a fleet of the worker's publishers. A seed chooses
// the faults; the timing is that of the machine. It watches all Nodes with connections that no fault disturbs, and ends at the first
// key that vanishes without a reason.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// options are the flags.
type options struct {
	nodeCount int
	seed      uint64
	manager   string        // path of assay-manager
	patience  time.Duration // timeout of each convergence
	out       io.Writer
	together  int           // maximum number of faults in a round
	awayNodes int           // nodes of the scenario away
	away      time.Duration // time without API servers in it
	etcdQuota int64         // in bytes; 0: the default of the tests
	steady    bool          // a soak without restarts, with a real worker
	// webhookArgs are additional arguments of the webhook.
	webhookArgs []string
}

// The default numbers of nodes.
const defaultNodes, soakNodes = 50, 1000

// work is what to run.
type work struct {
	faults    int
	short     bool
	scenarios string
	soak      time.Duration
	logs      string
}

func main() {
	o, todo := options{out: stage.Locked(os.Stdout)}, work{}
	flag.IntVar(&todo.faults, "faults", 100, "`number` of random faults; 0: none")
	flag.BoolVar(&todo.short, "short", false, "leave out faults after which a Lease has to expire, as the test does")
	flag.StringVar(&todo.scenarios, "scenarios", "all", "`names` of scenarios to run after them, separated by commas; all or none")
	flag.DurationVar(&todo.soak, "soak", 0, "`duration` of a run without faults that measures memory, goroutines and descriptors, instead of all others")
	flag.BoolVar(&o.steady, "steady", false, "with -soak: restart nothing, run a real worker, too, and compare the memory of the processes")
	flag.IntVar(&o.nodeCount, "nodes", 0, fmt.Sprintf("`number` of nodes; 0: %d, or %d with -soak", defaultNodes, soakNodes))
	flag.IntVar(&o.together, "together", mostTogether, "maximum `number` of faults at a time")
	flag.IntVar(&o.awayNodes, "away-nodes", 1000, "`number` of nodes of the scenario away")
	flag.DurationVar(&o.away, "away", 2*time.Minute, "`duration` without API servers in the scenario away")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the choice of faults")
	flag.StringVar(&o.manager, "manager", "bin/assay-manager", "`path` of assay-manager")
	flag.DurationVar(&o.patience, "patience", defaultPatience, "`duration` after which Nodes that do not converge are an error")
	flag.StringVar(&todo.logs, "logs", "", "`directory` of the programs' logs, new or empty; by default a temporary one, which is kept if the run fails")
	flag.Parse()
	if flag.NArg() > 0 || todo.faults < 0 || o.nodeCount < 0 || o.awayNodes < 1 || o.together < 1 || o.together > len(allLinks) {
		fmt.Fprintln(os.Stderr, "faults: invalid arguments: use flags only, and positive numbers")
		os.Exit(2)
	}
	if o.nodeCount == 0 {
		o.nodeCount = defaultNodes
		if todo.soak > 0 {
			o.nodeCount = soakNodes
		}
	}
	cluster.Main("faults", func(ctx context.Context) error { return todo.run(ctx, o) })
}

// run does the work.
func (t work) run(ctx context.Context, o options) error {
	chosen, err := choose(t.scenarios)
	if err != nil {
		return err
	}
	if t.soak > 0 {
		return t.inWorld(ctx, "soak", o, func(w *world) error { return w.soak(ctx, t.soak) })
	}
	if t.faults > 0 {
		err := t.inWorld(ctx, "faults", o, func(w *world) error {
			r, err := w.inject(ctx, t.faults, t.short)
			r.summary()
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, s := range chosen {
		adapted := o
		s.adapt(&adapted)
		if err := t.inWorld(ctx, s.name, adapted, func(w *world) error { return w.runScenario(ctx, s) }); err != nil {
			return err
		}
	}
	return nil
}

// inWorld runs a function on a control plane of its own.
func (t work) inWorld(ctx context.Context, name string, o options, do func(*world) error) error {
	dir := t.logs
	if dir != "" {
		dir = filepath.Join(dir, name)
	}
	opts := stage.Core
	opts.Progress, opts.EtcdQuota = o.out, o.etcdQuota
	return stage.Run(ctx, dir, opts, func(c *cluster.Cluster) error {
		w, err := newWorld(ctx, c, o)
		if err != nil {
			return err
		}
		defer w.close()
		return do(w)
	})
}

// defaultPatience is several times the longest back-off after a fault of some seconds, and the time until a Lease expires.
const defaultPatience = 3 * time.Minute
