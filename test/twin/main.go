//go:build linux

// Command twin compares Nodes with an independent evaluation of what the API server stores.
//
// It runs the controller, the webhook and the extender on a real control plane, with nodes whose contents all differ. A seed chooses
// contents, rules and changes; the timing is that of the machine. The reference reads stored objects with encoding/json, merges them
// plainly, and shares no code with the programs but the compiler and the evaluation of rules.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// options are the flags.
type options struct {
	nodeCount, ruleCount int
	seed                 uint64
	form                 string // A or B
	duration             time.Duration
	manager, assay       string // paths of programs
	patience             time.Duration
	out                  io.Writer
}

// The default sizes.
const defaultNodes, defaultRules = 100, 30

// defaultPatience is longer than the controller leaves a flapping key alone.
const defaultPatience = 100 * time.Second

func main() {
	o := options{out: stage.Locked(os.Stdout)}
	seeds, forms, logs := 0, "", ""
	flag.IntVar(&o.nodeCount, "nodes", defaultNodes, "`number` of nodes")
	flag.IntVar(&o.ruleCount, "rules", defaultRules, "`number` of rules")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of contents, rules and changes")
	flag.IntVar(&seeds, "seeds", 1, "`number` of seeds to run, from -seed on")
	flag.StringVar(&forms, "form", "AB", "A: at rest all keys are equal, without holds; B: default settings, each key was right once; AB: both")
	flag.DurationVar(&o.duration, "for", time.Minute, "`duration` of each form of each seed")
	flag.StringVar(&o.manager, "manager", "bin/assay-manager", "`path` of assay-manager")
	flag.StringVar(&o.assay, "assay", "bin/assay", "`path` of assay")
	flag.DurationVar(&o.patience, "patience", defaultPatience, "`duration` after which a difference is an error")
	flag.StringVar(&logs, "logs", "", "`directory` of the programs' logs, new or empty; by default a temporary one, which is kept if the run fails")
	flag.Parse()
	if flag.NArg() > 0 || o.nodeCount < 1 || seeds < 1 || strings.Trim(forms, "AB") != "" {
		fmt.Fprintln(os.Stderr, "twin: invalid arguments: use flags only, positive numbers, and the forms A, B or AB")
		os.Exit(2)
	}
	cluster.Main("twin", func(ctx context.Context) error {
		for range seeds {
			for _, form := range forms {
				o.form = string(form)
				if err := o.onCluster(ctx, logs); err != nil {
					return fmt.Errorf("form %s, seed %d: %w", o.form, o.seed, err)
				}
			}
			o.seed++
		}
		return nil
	})
}

// onCluster runs one form of one seed on a new control plane.
func (o options) onCluster(ctx context.Context, logs string) error {
	if logs != "" {
		logs = filepath.Join(logs, fmt.Sprint(o.form, o.seed))
	}
	opts := stage.Core
	opts.Progress = o.out
	return stage.Run(ctx, logs, opts, func(c *cluster.Cluster) error { return o.run(ctx, c) })
}
