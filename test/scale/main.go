//go:build linux

// Command scale measures what a fleet of nodes costs a real control plane: publishers of the worker, thousands in one process,
// with the real controller, webhook and extender.
//
// It prints figures and asserts nothing: machines differ. Its test runs a small fleet and checks what can be counted.
package main

import (
	"context"
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
	changes  int
	idle     time.Duration
	parallel int
	manager  string // path of assay-manager
	progress io.Writer
}

func main() {
	o := options{progress: os.Stderr}
	var output string
	flag.IntVar(&o.nodes, "nodes", 1000, "`number` of nodes")
	flag.IntVar(&o.changes, "changes", 50, "`number` of nodes that change one attribute, one after another")
	flag.DurationVar(&o.idle, "idle", time.Minute, "`duration` of the idle phase")
	flag.IntVar(&o.parallel, "parallel", 32, "`number` of workers that publish for the first time at once")
	flag.StringVar(&o.manager, "manager", "bin/assay-manager", "`path` of assay-manager")
	flag.StringVar(&output, "o", "", "output format: json, or empty for a table")
	flag.Parse()
	if flag.NArg() > 0 || output != "" && output != "json" || o.nodes < 1 || o.parallel < 1 {
		fmt.Fprintln(os.Stderr, "scale: invalid arguments: use flags only, -o json or none, and positive numbers")
		os.Exit(2)
	}
	_ = cluster.EndWithParent(syscall.SIGTERM) // without it only a comfort is missing
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, output)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, output string) error {
	c, err := cluster.Start(ctx, cluster.Options{FakeNodes: true, Core: true, Progress: o.progress})
	if err != nil {
		return err
	}
	defer c.Stop()
	if err := c.ApplyCRDs(ctx); err != nil {
		return err
	}
	r, err := measure(ctx, c, o)
	if err != nil {
		return err
	}
	if output == "json" {
		return r.json(os.Stdout)
	}
	return r.table(os.Stdout)
}
