package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/plan"
)

type migrateFlags struct {
	worldFlags
	output string
}

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Prepare a migration from NFD to Assay",
	}
	f := &migrateFlags{}
	check := &cobra.Command{
		Use:   "check",
		Short: "Show each label that would change on the nodes if Assay replaced NFD",
		Long: `Show each label that would change on the nodes if Assay replaced NFD.

It reads the NodeFeatures, the NodeFeatureRules and the Nodes of a cluster that runs NFD, evaluates the rules as Assay does,
and compares the results with the labels that NFD wrote. Pass the flags that NFD's master runs with. It changes nothing.

Exit codes: 0 nothing would change; 1 something would change; 2 the cluster could not be read.`,
		Example: `  assay migrate check
  assay migrate check --assay-namespace node-feature-discovery --enable-taints=false`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.check(cmd) },
	}
	f.register(check)
	outputFlag(check, &f.output, "text", "json", "yaml")
	cmd.AddCommand(check)
	return cmd
}

func (f *migrateFlags) check(cmd *cobra.Command) error {
	w, err := f.load(cmd.Context(), want{nodes: true, features: true, rules: true})
	if err != nil {
		return err
	}
	program, broken := w.program(cmd.Context(), w.rules)
	note(cmd, broken)
	settings := w.desired()
	settings.Withholding.All = false // the comparison is for those who have not begun to write
	names := w.fleet.Names()
	steps := make([][]plan.Step, len(names))
	without := 0
	for _, name := range names {
		if w.fleet.Published(name) == nil {
			without++
		}
	}
	input.Each(len(names), func(i int) {
		node := w.nodes[names[i]]
		if node == nil || w.fleet.Published(names[i]) == nil {
			return
		}
		outcome := program.Eval(w.fleet.Input(names[i]))
		if outcome.Failed != nil {
			return
		}
		steps[i] = settings.Compare(node, desired.Of(outcome)).Differences()
	})
	if len(w.nodes) == 0 {
		return errors.New("no Nodes found to compare with")
	}
	if without > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: no features are published for %s; they are skipped\n", clip.Count(without, "node"))
	}
	if w.sharing > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: feature sets, which NFD does not read, are named by %s; before you return to NFD, set core.shareFeatures to false and wait until this note is gone\n",
			clip.Count(w.sharing, "NodeFeature"))
	}
	return printChangeList(cmd, collectChanges(names, steps), len(names), f.output)
}
