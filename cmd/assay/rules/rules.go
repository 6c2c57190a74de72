// Package rules is the verb rules: it lists and shows the rules of a cluster.
package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/manifest"
)

type options struct {
	world.Options
	builtIn      []string
	long         bool
	phase, scope string
	output       string
	noHeaders    bool
}

// NewCommand returns assay rules.
func NewCommand() *cobra.Command {
	list := newRulesList()
	cmd := &cobra.Command{
		Use:         "rules",
		Short:       "List rules or show one",
		Annotations: map[string]string{cli.RunsAlone: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.UnknownVerb(cmd, args[0])
			}
			return list.RunE(cmd, args)
		},
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newRulesGet())
	return cmd
}

func (f *options) register(cmd *cobra.Command) {
	f.Options.AddFlags(cmd)
	cmd.Flags().StringSliceVar(&f.builtIn, "built-in-rules", nil, "files or directories of the controller's built-in rules")
}

func newRulesList() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules in evaluation order",
		Example: `  assay rules list
  assay rules list --long --phase early`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.phase != "" && !slices.Contains(world.PhaseOrder, f.phase) {
				return fmt.Errorf("invalid --phase %q: use one of %s", f.phase, strings.Join(world.PhaseOrder, ", "))
			}
			return f.list(cmd)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.long, "long", false, "print more columns, as -o wide")
	cmd.Flags().StringVar(&f.phase, "phase", "", "phase of the rules to list: early, preprocess, main")
	cmd.Flags().StringVar(&f.scope, "scope", "", "scope of the rules to list")
	printer.HeadersFlag(cmd, &f.noHeaders)
	printer.OutputFlag(cmd, &f.output, "table", "wide", "name", "json", "yaml")
	return cmd
}

func newRulesGet() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show one rule object, without conditions and actions if it is sensitive",
		Example: `  assay rules get gpu -o json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cli.ObjectName(args[0], cli.RuleKinds...)
			if err != nil {
				return err
			}
			return f.get(cmd, name)
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = cli.CompleteNames(&f.Flags, "nodefeaturerules")
	printer.OutputFlag(cmd, &f.output, "yaml", "json", "name")
	return cmd
}

// read returns all rules in evaluation order.
func (f *options) read(cmd *cobra.Command) ([]world.ListedRule, error) {
	w, err := f.Load(cmd.Context(), world.Want{Rules: true})
	if err != nil {
		return nil, err
	}
	out := w.Listed()
	if len(f.builtIn) > 0 {
		paths, err := input.Paths(f.builtIn)
		if err != nil {
			return nil, err
		}
		for _, file := range input.Manifests(paths, nil) {
			for _, d := range file.Documents {
				if d.Kind == manifest.KindRule {
					r := world.ListedRule{BuiltIn: true}
					d.Decode(&r.NodeFeatureRule)
					out = append(out, r)
				}
			}
		}
	}
	slices.SortStableFunc(out, world.EvaluationOrder)
	return out, nil
}

func (f *options) list(cmd *cobra.Command) error {
	all, err := f.read(cmd)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r world.ListedRule) bool {
		return f.phase != "" && world.PhaseOf(&r) != f.phase || f.scope != "" && ptr.Deref(r.Spec.Scope, "") != f.scope
	})
	w := cmd.OutOrStdout()
	switch f.output {
	case "name":
		for i := range all {
			fmt.Fprintln(w, "nodefeaturerule.nfd.k8s-sigs.io/"+all[i].Name)
		}
		return nil
	case "table", "wide":
	default:
		items := make([]any, len(all))
		for i := range all {
			if items[i], err = world.Shown(&all[i]); err != nil {
				return err
			}
		}
		return printer.Object(w, f.output, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	if len(all) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no NodeFeatureRules found")
		return nil
	}
	return f.table(cmd, all)
}

func (f *options) table(cmd *cobra.Command, all []world.ListedRule) error {
	rows := &printer.Table{}
	long := f.long || f.output == "wide"
	header := []string{"NAME", "PRIORITY", "PHASE", "RULES", "MATCHED", "ACCEPTED", "HEALTHY", "BUILT-IN", "AGE"}
	if long {
		header = append(header, "SCOPE", "SENSITIVE", "BASED-ON", "DESCRIPTION")
	}
	rows.Add(header...)
	for i := range all {
		r := &all[i]
		row := []string{
			r.Name, fmt.Sprint(ptr.Deref(r.Spec.Priority, 0)), world.PhaseOf(r), fmt.Sprint(len(r.Spec.Rules)),
			number(r.Status.MatchedNodes), statusOf(r, "Accepted"), statusOf(r, "Healthy"), yesNo(r.BuiltIn), age(r),
		}
		if long {
			var bases []string
			for _, b := range r.Spec.BasedOn {
				bases = append(bases, b.Name)
			}
			row = append(row, printer.Dash(ptr.Deref(r.Spec.Scope, "")), yesNo(ptr.Deref(r.Spec.Sensitive, false)),
				printer.Dash(strings.Join(bases, ",")), ptr.Deref(r.Spec.Description, ""))
		}
		rows.Add(row...)
	}
	return rows.List(cmd.OutOrStdout(), f.noHeaders)
}

func number(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func statusOf(r *world.ListedRule, name string) string {
	for _, c := range r.Status.Conditions {
		if c.Type == name {
			if c.Status == "True" {
				return "yes"
			}
			return c.Reason
		}
	}
	return "-"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func age(r *world.ListedRule) string {
	if r.CreationTimestamp.IsZero() {
		return "-"
	}
	return duration.HumanDuration(clock.RealClock{}.Since(r.CreationTimestamp.Time))
}

func (f *options) get(cmd *cobra.Command, name string) error {
	all, err := f.read(cmd)
	if err != nil {
		return err
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
		if all[i].Name != name {
			continue
		}
		if f.output == "name" {
			fmt.Fprintln(cmd.OutOrStdout(), "nodefeaturerule.nfd.k8s-sigs.io/"+name)
			return nil
		}
		object, err := world.Shown(&all[i])
		if err != nil {
			return err
		}
		return printer.Object(cmd.OutOrStdout(), f.output, object)
	}
	return cli.NotFound(nfdv1alpha1.NodeFeatureRuleResource.GroupResource(), name, cli.DidYouMean(name, names))
}
