// Package explain is the verb explain: it shows who set a key of a node, or why it is missing.
package explain

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/explanation"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
)

type options struct {
	world.Options
	files  []string
	output string
}

// NewCommand returns assay explain.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "explain NODE [LABEL|ANNOTATION|TAINT|RESOURCE|CONDITION]",
		Short: "Show which rule or client set a label, annotation, taint, resource or condition of a node, or why it is missing",
		Long: `Show which rule or client set a label, annotation, taint, resource or condition of a node, or why it is missing.

Without a key it lists the labels, annotations, taints, resources and conditions that rules set on the node, each with its rule. With a
key it shows the rule and the features that it matched.

If the Node has another value, lacks the key, or keeps one that nothing gives now, it shows what the controller reports about the key, and
until when: it flaps, another client keeps changing it, removalBudget or removalGracePeriod holds its removal, or the API server rejects it.
With -f it explains what the node would have if the rules in the files were applied, as assay diff shows it.

For a key that another client set it shows that client. For a key that the node does not have it shows what could set it: NodeFeatures that
request it, the setting of the worker that keeps it out, and the rules, the closest first, with the expressions that did not match.

Exit codes: 0 the Node has the key, or rules give it; 1 neither; 2 the cluster or the files could not be read.`,
		Example: `  assay explain gpu-1
  assay explain gpu-1 example.com/gpu -f rules.yaml
  assay explain gpu-1 example.com/gpu
  assay explain gpu-1 feature.node.kubernetes.io/pci-10de.present
  assay explain gpu-1 example.com/gpu -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.AddFlags(cmd)
	cli.FilesFlag(cmd, &f.files, "files or directories of rules that replace those of the same name in the cluster")
	cmd.ValidArgsFunction = cli.CompleteKeys(&f.Flags)
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	name, err := cli.ObjectName(args[0], cli.NodeKinds...)
	if err != nil {
		return err
	}
	if strings.Contains(name, ",") {
		return fmt.Errorf("explain shows one node: use one of %s", name)
	}
	args[0] = name
	w, err := f.Load(cmd.Context(), world.Want{Node: args[0], Nodes: true, Features: true, Devices: len(f.files) > 0, Rules: true})
	if err != nil {
		return err
	}
	next := &world.Applied{Objects: w.Rules}
	if len(f.files) > 0 {
		if next, err = w.Applied(cmd, f.files, nil); err != nil {
			return err
		}
		w.Rules = next.Objects
	}
	program := w.AppliedProgram(cmd, next)
	e := explanation.New(w, program, args[0], cmd.OutOrStdout())
	if len(args) == 1 {
		return e.All(f.output)
	}
	return e.One(cmd.Context(), args[1], f.output)
}
