//go:build linux

// Command scale measures the load of a fleet of nodes on a real control plane: the worker's publishers, thousands in one process,
// with the real controller, webhook and extender.
//
// It prints figures and asserts nothing: machines differ. Its test runs a small fleet and checks request counts.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// options are the flags.
type options struct {
	nodes     int
	rules     int
	shapes    int
	changes   int
	idle      time.Duration
	parallel  int
	shared    bool
	slices    bool
	baselines bool
	manager   string // path of assay-manager
	progress  io.Writer
	done      func(*result) // called after each phase; can be nil
}

// ruleCounts are the numbers of rules of the benchmarks.
var ruleCounts = []int{10, 100, 500}

// output is how results are printed, and where they are saved.
type output struct {
	format string
	save   string
	from   string
}

func main() {
	o := options{progress: os.Stderr}
	var out output
	var both bool
	flag.IntVar(&o.nodes, "nodes", 1000, "`number` of nodes")
	flag.IntVar(&o.rules, "rules", 100, "`number` of rules: 10, 100 or 500")
	flag.IntVar(&o.shapes, "shapes", 0, "`number` of instance types, for each of which the controller keeps a NodeShape; 0: none")
	flag.IntVar(&o.changes, "changes", 50, "`number` of nodes that change one attribute, one after another")
	flag.DurationVar(&o.idle, "idle", time.Minute, "`duration` of the idle phase")
	flag.IntVar(&o.parallel, "parallel", 32, "`number` of workers that publish for the first time at once")
	flag.BoolVar(&o.shared, "shared", false, "publish large features as NodeFeatureSets")
	flag.BoolVar(&o.slices, "slices", false, "publish the devices of a DRA driver on each node, and measure a rule that reads them in place of other changes")
	flag.BoolVar(&o.baselines, "baselines", false, fmt.Sprintf("measure a NodeBaseline instead: seven deviants, a restart, a repair and an upgrade; for numbers of nodes that %d divides", baselineUnit))
	flag.BoolVar(&both, "both", false, "measure whole objects, then shared sets, each on a control plane of its own, and print ratios")
	flag.StringVar(&o.manager, "manager", "bin/assay-manager", "`path` of assay-manager")
	flag.StringVar(&out.format, "o", "", "output format: json, markdown, or empty for a table")
	flag.StringVar(&out.save, "save", "", "`file` that gets all results so far after each phase, in JSON; empty: none")
	flag.StringVar(&out.from, "from", "", "print the results in this `file` of -save, and measure nothing")
	flag.Parse()
	if flag.NArg() > 0 || out.print() == nil || o.nodes < 1 || o.parallel < 1 || o.shapes < 0 || !slices.Contains(ruleCounts, o.rules) {
		fmt.Fprintln(os.Stderr, "scale: invalid arguments: use flags only, -o json, -o markdown or none, positive numbers, and 10, 100 or 500 rules")
		os.Exit(2)
	}
	if o.baselines {
		if o.nodes%baselineUnit != 0 || o.nodes < minBaselineNodes || o.shapes > 0 || o.slices {
			fmt.Fprintf(os.Stderr, "scale: invalid arguments: -baselines needs at least %d nodes, a number that %d divides, and neither -shapes nor -slices\n", minBaselineNodes, baselineUnit)
			os.Exit(2)
		}
		o.shapes = baselineTypes
	}
	modes := []bool{o.shared}
	if both {
		modes = []bool{false, true}
	}
	cluster.Main("scale", func(ctx context.Context) error { return run(ctx, o, modes, out) })
}

// run measures each mode, and prints the results: those of the completed phases if it fails or is stopped.
func run(ctx context.Context, o options, modes []bool, out output) error {
	if out.from != "" {
		all, err := load(out.from)
		if err != nil {
			return err
		}
		return out.print()(all, os.Stdout)
	}
	var all results
	var failed error
	for _, shared := range modes {
		o.shared = shared
		before := all
		o.done = func(r *result) {
			if err := out.keep(append(slices.Clone(before), r)); err != nil {
				_, _ = fmt.Fprintln(o.progress, "cannot save the results:", err)
			}
		}
		r, err := runOne(ctx, o)
		if r != nil {
			all = append(all, r)
		}
		if err != nil {
			failed = err
			break
		}
	}
	return errors.Join(failed, out.print()(all, os.Stdout))
}

// print returns the function that prints results in the format; nil: the format is unknown.
func (o output) print() func(results, io.Writer) error {
	return map[string]func(results, io.Writer) error{"": results.table, "json": results.json, "markdown": results.markdown}[o.format]
}

// keep saves results, for a run that cannot print them at its end.
func (o output) keep(all results) error {
	if o.save == "" {
		return nil
	}
	var text bytes.Buffer
	if err := all.json(&text); err != nil {
		return err
	}
	return os.WriteFile(o.save, text.Bytes(), 0o644)
}

// load reads results that were saved.
func load(file string) (all results, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return all, nil
}

// runOne measures one mode. With an error, the result has the phases before it.
func runOne(ctx context.Context, o options) (*result, error) {
	var r *result
	opts := stage.Core
	opts.Progress = o.progress
	err := stage.Run(ctx, "", opts, func(c *cluster.Cluster) (err error) {
		r, err = measure(ctx, c, o)
		return err
	})
	return r, err
}
