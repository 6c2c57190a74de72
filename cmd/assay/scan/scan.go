// Package scan is the verb scan: it shows the features of this machine.
package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/cmd/assay/internal/evaluation"
	"github.com/assay-project/assay/cmd/assay/internal/featuretable"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/dictionary"
)

// unnamedNode is the name in a NodeFeature of a machine whose files contain no name.
const unnamedNode = "node"

type options struct {
	machine  machine.Flags
	settings world.SettingFlags
	rules    []string
	archive  string
	root     string
	node     string
	output   string
	watch    bool
	all      bool
}

// NewCommand returns assay scan.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "scan [PATTERN…]",
		Short: "Show the features of this machine, and the results of rules",
		Long: `Show the features of this machine, as Assay's worker would publish them. It needs neither a cluster nor root privileges.

With --root or --archive it shows another machine by its files alone: features that the files do not contain are absent, such as the
capabilities of an x86 processor, which are not in its files.

A PATTERN is the name of a feature; * matches any characters: pci.*, cpu.cpuid.

If a part of the machine does not answer within --timeout, it shows nothing and exits with 1: an answer that leaves it out would be
that of another machine.`,
		Example: `  assay scan
  assay scan kernel.version 'cpu.*'
  assay scan -o nodefeature > node.yaml
  assay scan --rules rules.yaml`,
		RunE: f.run,
	}
	cmd.Flags().StringSliceVar(&f.rules, "rules", nil, "files of rules to evaluate on this machine")
	cmd.Flags().StringVar(&f.archive, "archive", "", "archive (txtar) with the files of another machine to read instead of this one")
	cmd.Flags().StringVar(&f.root, "root", "", "root directory of the machine to read instead of this one")
	cmd.Flags().StringVar(&f.node, "node", "", "name of the node; the host name by default")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "keep running and show changes")
	cmd.Flags().BoolVar(&f.all, "all", false, "do not shorten long lists (table)")
	f.machine.AddFlags(cmd.Flags())
	f.settings.AddFlags(cmd.Flags())
	printer.OutputFlag(cmd, &f.output, "table", "json", "yaml", "nodefeature")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return dictionary.Names(), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (f *options) run(cmd *cobra.Command, patterns []string) error {
	h, err := f.host(cmd.InOrStdin())
	if err != nil {
		return err
	}
	runner := discovery.NewRunner(h, machine.Sources(), discovery.Everything)
	report, err := f.machine.Complete(cmd.Context(), runner, cmd.ErrOrStderr(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	name := cmp.Or(f.node, h.System.NodeName(), unnamedNode)
	if len(f.rules) > 0 {
		return f.evaluate(cmd, name, report)
	}
	shown := selectFeatures(&report.Features, patterns)
	if len(patterns) > 0 && empty(shown) {
		return cli.Found(fmt.Errorf("this machine has no feature %s%s", strings.Join(patterns, ", "), cli.MeantFeature(patterns[0])))
	}
	if err := f.print(cmd.OutOrStdout(), name, shown, report.Labels, len(patterns) > 0); err != nil {
		return err
	}
	if f.watch {
		return f.follow(cmd, runner, shown, patterns)
	}
	return nil
}

// host returns the host to scan.
func (f *options) host(stdin io.Reader) (host.Host, error) {
	switch {
	case f.archive != "" && f.root != "":
		return host.Host{}, errors.New("--archive and --root are two machines: leave out one of them")
	case f.archive == "" && f.root == "":
		return host.Real(host.Paths{NodeName: f.node}), nil
	case f.archive == "":
		if info, err := os.Stat(f.root); err != nil {
			return host.Host{}, err
		} else if !info.IsDir() {
			return host.Host{}, fmt.Errorf("--root %s is not a directory; use --archive for an archive", f.root)
		}
		h, this := host.Root(f.root, f.node)
		if f.watch && !this {
			return host.Host{}, errors.New("--watch follows this machine, and --root is another one: leave out --watch")
		}
		return h, nil
	}
	if f.watch {
		return host.Host{}, errors.New("an archive does not change: leave out --watch")
	}
	data, err := input.Read(f.archive, stdin)
	if err != nil {
		return host.Host{}, err
	}
	h, err := host.FromArchive(data)
	if err != nil {
		return host.Host{}, fmt.Errorf("%s: %w", f.archive, err)
	}
	return h, nil
}

func (f *options) evaluate(cmd *cobra.Command, name string, report *discovery.Report) error {
	s, err := f.settings.Over(cmd.ErrOrStderr(), world.UnknownInstallation())
	if err != nil {
		return err
	}
	opt := s.Rules()
	set, err := world.LoadRules(cmd, f.rules, opt)
	if err != nil {
		return err
	}
	set.Print(cmd.ErrOrStderr(), false)
	in := machine.Input(s.Gather(cluster.DefaultNamespace), name, report)
	return evaluation.PrintFiles(cmd, set, in, opt, f.output, evaluation.Options{Taints: s.EnableTaints, All: f.all, Mask: opt.Mask})
}

func (f *options) print(w io.Writer, name string, features *nfdv1alpha1.Features, labels map[string]string, part bool) error {
	object := &nfdv1alpha1.NodeFeature{
		TypeMeta:   metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: name}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{Features: *features, Labels: labels},
	}
	switch f.output {
	case "nodefeature":
		return printer.Object(w, "yaml", object)
	case "table":
	default: // the formats of objects
		return printer.Object(w, f.output, struct {
			Node     string                `json:"node"`
			Features *nfdv1alpha1.Features `json:"features"`
			Labels   map[string]string     `json:"labels,omitempty"`
		}{name, features, labels})
	}
	(&featuretable.Table{W: w, S: printer.StyleOf(w), All: f.all || part}).Print(features)
	if !part {
		fmt.Fprintf(w, "\n%s by default; assay scan -o json lists them, assay scan --rules FILE those of your rules\n", clip.Count(len(labels), "label"))
	}
	return nil
}

// selectFeatures returns the features and elements whose names match a pattern, or all features without patterns.
func selectFeatures(in *nfdv1alpha1.Features, patterns []string) *nfdv1alpha1.Features {
	if len(patterns) == 0 {
		return in
	}
	out := &nfdv1alpha1.Features{
		Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
		Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
	wanted := func(name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return column.Match(p, name) })
	}
	for name, set := range in.Flags {
		if !wanted(name) {
			set.Elements = maps.Clone(set.Elements)
			maps.DeleteFunc(set.Elements, func(element string, _ nfdv1alpha1.Nil) bool { return !wanted(name + "." + element) })
		}
		if wanted(name) || len(set.Elements) > 0 {
			out.Flags[name] = set
		}
	}
	for name, set := range in.Attributes {
		if !wanted(name) {
			set.Elements = maps.Clone(set.Elements)
			maps.DeleteFunc(set.Elements, func(element, _ string) bool { return !wanted(name + "." + element) })
		}
		if wanted(name) || len(set.Elements) > 0 {
			out.Attributes[name] = set
		}
	}
	for name, set := range in.Instances {
		if !wanted(name) {
			var kept []nfdv1alpha1.InstanceFeature
			for _, e := range set.Elements {
				attributes := maps.Clone(e.Attributes)
				maps.DeleteFunc(attributes, func(element, _ string) bool { return !wanted(name + "." + element) })
				if len(attributes) > 0 {
					kept = append(kept, nfdv1alpha1.InstanceFeature{Attributes: attributes})
				}
			}
			set.Elements = kept
		}
		if wanted(name) || len(set.Elements) > 0 {
			out.Instances[name] = set
		}
	}
	return out
}

func empty(f *nfdv1alpha1.Features) bool { return len(f.Flags)+len(f.Attributes)+len(f.Instances) == 0 }

// follow prints changes until the command is interrupted.
func (f *options) follow(cmd *cobra.Command, runner *discovery.Runner, before *nfdv1alpha1.Features, patterns []string) error {
	w := cmd.OutOrStdout()
	fmt.Fprintln(cmd.ErrOrStderr(), "Watching for changes; press Ctrl-C to stop")
	err := watchHost(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context, sources []string) {
		after := selectFeatures(&runner.Run(ctx, sources...).Features, patterns)
		printChanges(w, before, after)
		before = after
	})
	return err
}
