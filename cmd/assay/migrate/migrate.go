// Package migrate is the verb migrate: it shows what changes when Assay takes over from Node Feature Discovery.
package migrate

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/changes"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/plan"
)

type options struct {
	world.Options
	output string
}

// NewCommand returns assay migrate.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Prepare a migration from NFD to Assay",
	}
	f := &options{}
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
	f.AddFlags(check)
	printer.OutputFlag(check, &f.output, "text", "json", "yaml")
	cmd.AddCommand(check)
	return cmd
}

func (f *options) check(cmd *cobra.Command) error {
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Rules: true})
	if err != nil {
		return err
	}
	program, broken := w.Program(cmd.Context(), w.Rules)
	world.Note(cmd, broken)
	settings := w.Desired()
	settings.Withholding.All = false // the comparison is for those who have not begun to write
	names := w.Fleet.Names()
	steps := make([][]plan.Step, len(names))
	without := 0
	for _, name := range names {
		if w.Fleet.Published(name) == nil {
			without++
		}
	}
	input.Each(len(names), func(i int) {
		node := w.Nodes[names[i]]
		if node == nil || w.Fleet.Published(names[i]) == nil {
			return
		}
		outcome := program.Eval(w.Fleet.Input(names[i]))
		if outcome.Failed != nil {
			return
		}
		steps[i] = settings.Compare(node, desired.Of(outcome)).Differences()
	})
	if len(w.Nodes) == 0 {
		return errors.New("no Nodes found to compare with")
	}
	if without > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: no features are published for %s; they are skipped\n", clip.Count(without, "node"))
	}
	if w.Sharing > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: feature sets, which NFD does not read, are named by %s; before you return to NFD, set core.shareFeatures to false and wait until this note is gone\n",
			clip.Count(w.Sharing, "NodeFeature"))
	}
	return changes.Print(cmd, changes.Collect(names, steps), len(names), f.output)
}
