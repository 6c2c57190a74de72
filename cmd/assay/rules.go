package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/rules/manifest"
)

// listedRule is a rule object and its source.
type listedRule struct {
	nfdv1alpha1.NodeFeatureRule
	builtIn bool
}

type rulesFlags struct {
	worldFlags
	builtIn      []string
	long         bool
	phase, scope string
	output       string
	noHeaders    bool
}

func newRules() *cobra.Command {
	list := newRulesList()
	cmd := &cobra.Command{
		Use:         "rules",
		Short:       "List rules or show one",
		Annotations: map[string]string{runsAlone: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return list.RunE(cmd, args)
		},
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newRulesGet())
	return cmd
}

func (f *rulesFlags) register(cmd *cobra.Command) {
	f.worldFlags.register(cmd)
	cmd.Flags().StringSliceVar(&f.builtIn, "built-in-rules", nil, "files or directories of the controller's built-in rules")
}

func newRulesList() *cobra.Command {
	f := &rulesFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules in evaluation order",
		Example: `  assay rules list
  assay rules list --long --phase early`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.phase != "" && !slices.Contains(phaseOrder, f.phase) {
				return fmt.Errorf("invalid --phase %q: use one of %s", f.phase, strings.Join(phaseOrder, ", "))
			}
			return f.list(cmd)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.long, "long", false, "print more columns, as -o wide")
	cmd.Flags().StringVar(&f.phase, "phase", "", "phase of the rules to list: early, preprocess, main")
	cmd.Flags().StringVar(&f.scope, "scope", "", "scope of the rules to list")
	headersFlag(cmd, &f.noHeaders)
	outputFlag(cmd, &f.output, "table", "wide", "name", "json", "yaml")
	return cmd
}

func newRulesGet() *cobra.Command {
	f := &rulesFlags{}
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show one rule object, without conditions and actions if it is sensitive",
		Example: `  assay rules get gpu -o json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := objectName(args[0], ruleKinds...)
			if err != nil {
				return err
			}
			return f.get(cmd, name)
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = completeNames(&f.Flags, "nodefeaturerules")
	outputFlag(cmd, &f.output, "yaml", "json", "name")
	return cmd
}

// read returns all rules in evaluation order.
func (f *rulesFlags) read(cmd *cobra.Command) ([]listedRule, error) {
	w, err := f.load(cmd.Context(), want{rules: true})
	if err != nil {
		return nil, err
	}
	out := w.listed()
	if len(f.builtIn) > 0 {
		paths, err := input.Paths(f.builtIn)
		if err != nil {
			return nil, err
		}
		for _, file := range input.Manifests(paths, nil) {
			for _, d := range file.Documents {
				if d.Kind == manifest.KindRule {
					r := listedRule{builtIn: true}
					d.Decode(&r.NodeFeatureRule)
					out = append(out, r)
				}
			}
		}
	}
	slices.SortStableFunc(out, evaluationOrder)
	return out, nil
}

// listed returns the rules of a world in evaluation order.
func (w *world) listed() []listedRule {
	var out []listedRule
	for _, r := range w.rules {
		out = append(out, listedRule{NodeFeatureRule: r})
	}
	for _, r := range w.builtIn {
		out = append(out, listedRule{NodeFeatureRule: r, builtIn: true})
	}
	slices.SortStableFunc(out, evaluationOrder)
	return out
}

var phaseOrder = []string{"early", "preprocess", "main"}

func phaseOf(r *listedRule) string {
	if p := string(ptr.Deref(r.Spec.Phase, "")); p != "" {
		return p
	}
	return string(nfdv1alpha1.PhaseMain)
}

func evaluationOrder(a, b listedRule) int {
	if d := slices.Index(phaseOrder, phaseOf(&a)) - slices.Index(phaseOrder, phaseOf(&b)); d != 0 {
		return d
	}
	if d := ptr.Deref(b.Spec.Priority, 0) - ptr.Deref(a.Spec.Priority, 0); d != 0 {
		return int(d)
	}
	return strings.Compare(a.Name, b.Name)
}

func (f *rulesFlags) list(cmd *cobra.Command) error {
	all, err := f.read(cmd)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r listedRule) bool {
		return f.phase != "" && phaseOf(&r) != f.phase || f.scope != "" && ptr.Deref(r.Spec.Scope, "") != f.scope
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
			if items[i], err = shown(&all[i]); err != nil {
				return err
			}
		}
		return printObject(w, f.output, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	if len(all) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no NodeFeatureRules found")
		return nil
	}
	return f.table(cmd, all)
}

func (f *rulesFlags) table(cmd *cobra.Command, all []listedRule) error {
	rows := &table{}
	long := f.long || f.output == "wide"
	header := []string{"NAME", "PRIORITY", "PHASE", "RULES", "MATCHED", "ACCEPTED", "HEALTHY", "BUILT-IN", "AGE"}
	if long {
		header = append(header, "SCOPE", "SENSITIVE", "BASED-ON", "DESCRIPTION")
	}
	rows.add(header...)
	for i := range all {
		r := &all[i]
		row := []string{
			r.Name, fmt.Sprint(ptr.Deref(r.Spec.Priority, 0)), phaseOf(r), fmt.Sprint(len(r.Spec.Rules)),
			number(r.Status.MatchedNodes), statusOf(r, "Accepted"), statusOf(r, "Healthy"), yesNo(r.builtIn), age(r),
		}
		if long {
			var bases []string
			for _, b := range r.Spec.BasedOn {
				bases = append(bases, b.Name)
			}
			row = append(row, dash(ptr.Deref(r.Spec.Scope, "")), yesNo(ptr.Deref(r.Spec.Sensitive, false)),
				dash(strings.Join(bases, ",")), ptr.Deref(r.Spec.Description, ""))
		}
		rows.add(row...)
	}
	return rows.list(cmd.OutOrStdout(), f.noHeaders)
}

func number(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func statusOf(r *listedRule, name string) string {
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

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func age(r *listedRule) string {
	if r.CreationTimestamp.IsZero() {
		return "-"
	}
	return duration.HumanDuration(clock.RealClock{}.Since(r.CreationTimestamp.Time))
}

func (f *rulesFlags) get(cmd *cobra.Command, name string) error {
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
		object, err := shown(&all[i])
		if err != nil {
			return err
		}
		return printObject(cmd.OutOrStdout(), f.output, object)
	}
	return notFound(nfdv1alpha1.NodeFeatureRuleResource.GroupResource(), name, didYouMean(name, names))
}

// shown returns an object without sensitive parts: in sensitive rules, conditions and actions are null.
func shown(r *listedRule) (any, error) {
	r.ManagedFields = nil
	delete(r.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if r.Kind == "" {
		r.APIVersion, r.Kind = nfdv1alpha1.GroupVersion.String(), manifest.KindRule
	}
	data, err := json.Marshal(&r.NodeFeatureRule)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec["rules"].([]any)
	for _, item := range list {
		rule, _ := item.(map[string]any)
		for key, value := range rule { // remove fields that NFD's types always write
			if value == nil || value == "" {
				delete(rule, key)
			}
		}
		if ptr.Deref(r.Spec.Sensitive, false) {
			rule["conditions"], rule["actions"] = nil, nil
		}
	}
	if r.builtIn {
		object["builtIn"] = true
	}
	if status, ok := object["status"].(map[string]any); ok && len(status) == 0 {
		delete(object, "status")
	}
	return object, nil
}
