// Package diff is the verb diff: it shows what files would change on nodes.
package diff

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/changes"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

type options struct {
	world.Options
	files  []string
	nodes  string
	output string
	remove []string
}

// NewCommand returns assay diff.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "diff [-f] FILE…",
		Short: "Show the changes that applying rules would make, by node",
		Long: `Show the changes that applying rules would make, by node. Objects in the files replace those of the same name in the cluster.
It adds what custom rules of the worker give: those of its configuration, also in a ConfigMap, or of a file of custom.d.

A key that the controller keeps on a node although no rule sets it now is not added again by a rule that sets it, and is removed when the
rule that set it, by the record of the controller, is changed or deleted.

Exit codes: 0 nothing would change; 1 something would change, the cluster would reject the files (the errors are printed), or a node or
rule that you name does not exist; 2 the cluster or the files could not be read.`,
		Example: `  assay diff rules.yaml
  assay diff rules/ --nodes 'n[1-20]'
  assay diff --remove old-rules`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, append(f.files, args...)) },
	}
	f.AddFlags(cmd)
	cli.FilesFlag(cmd, &f.files, "files or directories of rules")
	cmd.ValidArgsFunction = cli.CompleteYAML
	cmd.Flags().StringVar(&f.nodes, "nodes", "", "nodes to compare, separated by commas: names and ranges such as n[1-20]; all nodes by default")
	cmd.Flags().StringSliceVar(&f.remove, "remove", nil, "names of rule objects to treat as deleted")
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command, files []string) error {
	if len(files)+len(f.remove) == 0 {
		return fmt.Errorf("no input: use assay diff FILE…")
	}
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: len(files) > 0, Rules: true})
	if err != nil {
		return err
	}
	before, broken := w.Program(cmd.Context(), w.Rules)
	world.Note(cmd, broken)
	next, err := w.Applied(cmd, files, f.remove)
	if err != nil {
		return err
	}
	after := w.AppliedProgram(cmd, next)
	if len(next.Custom) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: custom rules of the worker are added: labels that only its present rules give stay in the comparison")
	}
	names := w.Fleet.Names()
	if f.nodes != "" {
		if names, err = w.Chosen(f.nodes); err != nil {
			return err
		}
	}
	kept, steps, withholding := newKeptDiff(cmd, w, before, after), make([][]plan.Step, len(names)), w.Withholding()
	input.Each(len(names), func(i int) {
		in := w.Fleet.Input(names[i])
		was, is := before.Eval(in), after.Eval(in)
		steps[i] = kept.steps(w.Nodes[names[i]], was, is, between(was, is))
	})
	list := slices.DeleteFunc(changes.Collect(names, steps), func(c *changes.Change) bool {
		why := withholding.Withholds(keys.Kind(c.Kind))
		if why != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s %s is not written on nodes: %s\n", c.Kind, clip.Printable(c.Key), why)
		}
		return why != ""
	})
	return changes.Print(cmd, list, len(names), f.output)
}

// between returns the differences between two outcomes of a node. If a rule has failed, the node keeps its current state.
func between(before, after *rules.Outcome) []plan.Step {
	if after.Failed != nil {
		if before.Failed != nil {
			return nil
		}
		return []plan.Step{{Op: plan.Add, Kind: "failure", Key: after.Failed.String(), New: after.Failed.Message}}
	}
	old, now := keysOf(before), keysOf(after)
	var out []plan.Step
	for k, was := range old {
		if is, ok := now[k]; !ok {
			out = append(out, plan.Step{Op: plan.Remove, Kind: k.kind, Key: k.key, Old: was})
		} else if is != was {
			out = append(out, plan.Step{Op: plan.Change, Kind: k.kind, Key: k.key, Old: was, New: is})
		}
	}
	for k, is := range now {
		if _, ok := old[k]; !ok {
			out = append(out, plan.Step{Op: plan.Add, Kind: k.kind, Key: k.key, New: is})
		}
	}
	return out
}

type flatKey struct {
	kind keys.Kind
	key  string
}

// keysOf returns the keys that an outcome gives, with their values.
func keysOf(o *rules.Outcome) map[flatKey]string {
	out := map[flatKey]string{}
	for g := range o.Given() {
		out[flatKey{g.Kind, g.Key}] = g.Value
	}
	return out
}
