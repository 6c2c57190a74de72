// Package eval is the verb eval: it shows the results of rules and expressions on nodes.
package eval

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/evaluation"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/settings"
)

// options are the flags of eval.
type options struct {
	world.Options
	machine  machine.Flags
	rules    []string
	features []string
	node     string
	nodes    string
	selector string
	metadata string
	local    bool
	output   string
	quiet    bool
	matched  bool
	all      bool

	noHeaders bool
}

// NewCommand returns assay eval.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "eval [-f] RULES… [--features FILE | --node NAME | --nodes NAMES | --local]",
		Short: "Show the results of rules on a node, and why",
		Long: `Show the results of rules on a node, and why.

It reads the features of the node from files: NodeFeatures as kubectl prints them, the output of "assay scan -o nodefeature" or
"assay capture", or bare features (a map with flags, attributes and instances). It merges several files, or several NodeFeatures
of one node, as the cluster does. Without files it reads the features from the cluster, of the node that --node names or of several
(--nodes n[1-20],gpu-1 or -l SELECTOR), or, with --local, from this machine. Without RULES it evaluates the rules of the cluster.

RULES are NodeFeatureRules, or custom rules of the worker: its configuration, also in a ConfigMap, or a file of custom.d.

Exit codes: 0 all rules were evaluated; 1 rules have errors (nothing is evaluated or printed to standard output), or a rule failed on
the node (the other rules are evaluated and printed).`,
		Example: `  assay eval rules.yaml --features node.yaml
  assay eval -f rules/ --features node.yaml --node node-1 -o json
  assay scan -o nodefeature | assay eval rules.yaml --features -
  assay eval rules.yaml --node gpu-1
  assay eval rules.yaml --nodes 'n[1-20]' -o json
  assay eval rules.yaml --local`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.rules = append(f.rules, args...)
			return f.run(cmd)
		},
	}
	cli.FilesFlag(cmd, &f.rules, "files or directories of rules")
	cmd.Flags().StringSliceVar(&f.features, "features", nil, "files of features; - for standard input")
	cmd.Flags().StringVar(&f.node, "node", "", "name of the node")
	cmd.Flags().StringVar(&f.metadata, "node-labels", "", "file of the Node, whose labels and annotations rules may read")
	cmd.Flags().StringVar(&f.nodes, "nodes", "", "nodes of the cluster, separated by commas: names and ranges such as n[1-20]; 'all' for all nodes")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "label selector of nodes of the cluster")
	cmd.Flags().BoolVar(&f.local, "local", false, "read the features of this machine")
	f.machine.AddFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not print warnings about the rules")
	cmd.Flags().BoolVar(&f.matched, "matched", false, "show only rules that match (text)")
	cmd.Flags().BoolVar(&f.all, "all", false, "also show labels of spec.labels of NodeFeatures (text)")
	f.AddFlags(cmd)
	cmd.ValidArgsFunction = cli.CompleteYAML
	cli.CompleteNodeFlag(cmd, &f.Flags)
	for _, other := range []string{"node", "nodes", "selector", "features"} {
		cmd.MarkFlagsMutuallyExclusive("local", other)
	}
	cmd.MarkFlagsMutuallyExclusive("node", "nodes")
	cmd.MarkFlagsMutuallyExclusive("node", "selector")
	printer.HeadersFlag(cmd, &f.noHeaders)
	printer.OutputFlag(cmd, &f.output, "text", "wide", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command) error {
	if f.nodes != "" && len(f.features) > 0 { // the files may contain several nodes
		f.From, f.features = append(f.From, f.features...), nil
	}
	var err error
	if f.node, err = cli.ObjectName(f.node, cli.NodeKinds...); err != nil {
		return err
	}
	if len(f.features) == 0 && !f.local && (f.node != "" || f.nodes != "" || f.selector != "") {
		return f.onCluster(cmd)
	}
	if len(f.rules) == 0 {
		return errors.New("no rules: pass files or directories, as in assay eval RULES…")
	}
	s, err := f.Settings.Over(cmd.ErrOrStderr(), world.UnknownInstallation())
	if err != nil {
		return err
	}
	opt := s.Rules()
	set, err := world.LoadRules(cmd, f.rules, opt)
	if err != nil {
		return err
	}
	in, err := f.input(cmd, s)
	if err != nil {
		return err
	}
	set.Print(cmd.ErrOrStderr(), f.quiet)
	return evaluation.PrintFiles(cmd, set, in, opt, f.output,
		evaluation.Options{Matched: f.matched, All: f.all, Taints: s.EnableTaints, Mask: opt.Mask})
}

// input reads the features of the node.
func (f *options) input(cmd *cobra.Command, s *settings.Settings) (rules.Input, error) {
	policy := s.Gather(cmp.Or(f.AssayNamespace, cluster.DefaultNamespace))
	if f.local {
		name, report, err := f.machine.Read(cmd, f.node)
		if err != nil {
			return rules.Input{}, err
		}
		return machine.Input(policy, name, report), nil
	}
	if len(f.features) == 0 {
		return rules.Input{}, errors.New("no features: pass --features FILE, --features - for standard input, --node NAME of the cluster, or --local")
	}
	return world.ReadInput(cmd, policy, f.features, f.metadata, f.node)
}
