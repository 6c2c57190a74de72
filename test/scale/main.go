//go:build linux

// Command scale measures the load of a fleet of nodes on a real control plane: the worker's publishers, thousands in one process,
// with the real controller, webhook and extender.
//
// It prints figures and asserts nothing: machines differ. Its test runs a small fleet and checks request counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/assay-project/assay/test/cluster"
)

// options are the flags.
type options struct {
	nodes    int
	shapes   int
	changes  int
	idle     time.Duration
	parallel int
	shared   bool
	manager  string // path of assay-manager
	progress io.Writer
}

func main() {
	o := options{progress: os.Stderr}
	var output string
	var both bool
	flag.IntVar(&o.nodes, "nodes", 1000, "`number` of nodes")
	flag.IntVar(&o.shapes, "shapes", 0, "`number` of instance types, for each of which the controller keeps a NodeShape; 0: none")
	flag.IntVar(&o.changes, "changes", 50, "`number` of nodes that change one attribute, one after another")
	flag.DurationVar(&o.idle, "idle", time.Minute, "`duration` of the idle phase")
	flag.IntVar(&o.parallel, "parallel", 32, "`number` of workers that publish for the first time at once")
	flag.BoolVar(&o.shared, "shared", false, "publish large features as NodeFeatureSets")
	flag.BoolVar(&both, "both", false, "measure whole objects, then shared sets, each on a control plane of its own, and print ratios")
	flag.StringVar(&o.manager, "manager", "bin/assay-manager", "`path` of assay-manager")
	flag.StringVar(&output, "o", "", "output format: json, or empty for a table")
	flag.Parse()
	if flag.NArg() > 0 || output != "" && output != "json" || o.nodes < 1 || o.parallel < 1 || o.shapes < 0 {
		fmt.Fprintln(os.Stderr, "scale: invalid arguments: use flags only, -o json or none, and positive numbers")
		os.Exit(2)
	}
	_ = cluster.EndWithParent(syscall.SIGTERM) // only a convenience
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	modes := []bool{o.shared}
	if both {
		modes = []bool{false, true}
	}
	err := run(ctx, o, modes, output)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run measures each mode, and prints the results: those of the completed phases if it fails or is stopped.
func run(ctx context.Context, o options, modes []bool, output string) error {
	var all results
	var failed error
	for _, shared := range modes {
		o.shared = shared
		r, err := runOne(ctx, o)
		if r != nil {
			all = append(all, r)
		}
		if err != nil {
			failed = err
			break
		}
	}
	if output == "json" {
		return errors.Join(failed, all.json(os.Stdout))
	}
	return errors.Join(failed, all.table(os.Stdout))
}

// runOne measures one mode. With an error, the result has the phases before it.
func runOne(ctx context.Context, o options) (*result, error) {
	c, err := cluster.Start(ctx, cluster.Options{FakeNodes: true, Core: true, Progress: o.progress})
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	if err := c.ApplyCRDs(ctx); err != nil {
		return nil, err
	}
	return measure(ctx, c, o)
}
