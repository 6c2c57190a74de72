package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/tracing"
	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/manifest"
)

type explainFlags struct {
	worldFlags
	output string
}

func newExplain() *cobra.Command {
	f := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain NODE [LABEL|ANNOTATION|TAINT|RESOURCE|CONDITION]",
		Short: "Show which rule or client set a label, annotation, taint, resource or condition of a node, or why it is missing",
		Long: `Show which rule or client set a label, annotation, taint, resource or condition of a node, or why it is missing.

Without a key it lists the labels, annotations, taints, resources and conditions that rules set on the node, each with its rule. With a
key it shows the rule and the features that it matched. For a key that no rule sets now and that the controller still keeps it shows the rule
that set it and why it is kept. For a key that another client set it shows that client. For a key that is not on the node
it shows the rules that could set it, the closest first, and the expressions that did not match. One key is explained as text only.`,
		Example: `  assay explain gpu-1
  assay explain gpu-1 example.com/gpu`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd)
	cmd.ValidArgsFunction = completeKeys(&f.Flags)
	outputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 2 && f.output != "text" {
		return fmt.Errorf("one key is explained as text only; leave %s out, and -o %s prints all keys of the node", args[1], f.output)
	}
	name, err := objectName(args[0], nodeKinds...)
	if err != nil {
		return err
	}
	args[0] = name
	w, err := f.load(cmd.Context(), want{node: args[0], nodes: true, features: true, rules: true})
	if err != nil {
		return err
	}
	program, broken := w.program(cmd.Context(), w.rules)
	note(cmd, broken)
	in := w.fleet.Input(args[0])
	e := &explanation{
		tracer:  tracer{traceOptions: traceOptions{taints: true, mask: w.opt.Mask, withholding: w.withholding()}, w: cmd.OutOrStdout(), s: styleOf(cmd.OutOrStdout())},
		world:   w,
		node:    w.nodes[args[0]],
		outcome: program.Eval(in), traces: program.Trace(in),
	}
	if len(args) == 1 {
		if f.output != "text" {
			return printObject(e.w, f.output, newResult(e.outcome, true))
		}
		e.tracer.outcome(e.outcome)
		return nil
	}
	return e.key(cmd.Context(), args[1])
}

// explanation explains single keys of a node.
type explanation struct {
	tracer
	world   *world
	node    *corev1.Node
	outcome *rules.Outcome
	traces  []rules.RuleTrace
}

// given is a key that rules set on a node.
type given struct {
	kind       keys.Kind
	key, value string
}

// find returns the keys with a name that rules set. The name may omit the default namespace.
func (e *explanation) find(name string) []given {
	full := e.world.opt.Keys.Qualify(name)
	var out []given
	for _, m := range []struct {
		kind   keys.Kind
		values map[string]string
	}{
		{keys.Label, e.outcome.Labels()}, {keys.Annotation, e.outcome.Annotations()},
		{keys.Resource, e.outcome.ExtendedResources()},
		{keys.Condition, e.outcome.NodeConditions()},
	} {
		for _, key := range []string{name, full} {
			if value, ok := m.values[key]; ok && !slices.Contains(out, given{m.kind, key, value}) {
				out = append(out, given{m.kind, key, value})
			}
		}
	}
	for _, t := range e.outcome.Taints() {
		if t.Key == name || t.Key == full || t.Key+":"+string(t.Effect) == name {
			out = append(out, given{keys.Taint, t.Key + ":" + string(t.Effect), t.Value})
		}
	}
	return out
}

func (e *explanation) key(ctx context.Context, name string) error {
	found := e.find(name)
	if e.outcome.Failed != nil {
		fmt.Fprintf(e.w, "Nothing is written on %s: %s failed: %s\n", e.outcome.Node, e.outcome.Failed.Ref, printable(e.outcome.Failed.Message))
	}
	for _, g := range found {
		fmt.Fprintf(e.w, "%s %s\n", g.kind, e.s.bold(printable(line(g.key, g.value))))
		e.present(g)
		origin, _ := e.outcome.Origin(g.kind, g.key)
		if origin.Object == "" {
			fmt.Fprintf(e.w, "  a NodeFeature requests it directly: %s\n", strings.Join(e.askers(g.key), ", "))
			continue
		}
		fmt.Fprintf(e.w, "  from %s (%s)%s\n", origin.Ref, origin.How, from(origin.Ref))
		for i := range e.traces {
			if e.traces[i].Ref == origin.Ref {
				e.rule(&e.traces[i])
			}
		}
		for _, c := range e.outcome.Conflicts() {
			if c.Key == g.key {
				fmt.Fprintf(e.w, "  %s sets another value, which is overridden\n", c.Lost)
			}
		}
	}
	if len(found) > 0 {
		return nil
	}
	if others := e.foreign(name); len(others) > 0 {
		e.printForeign(ctx, others)
		return nil
	}
	return e.absent(name)
}

// present reports whether the Node has the key with the expected value.
func (e *explanation) present(g given) {
	if why := written.Differs(e.node, e.withholding, g.kind, g.key, g.value); why != "" {
		fmt.Fprintln(e.w, "  "+e.s.warn(printable(why)))
	}
}

// askers returns the NodeFeatures that request a label.
func (e *explanation) askers(key string) []string {
	var out []string
	for _, p := range e.world.fleet.Published(e.outcome.Node) {
		for name := range p.Labels {
			if e.world.opt.Keys.Qualify(name) == key {
				out = append(out, p.Namespace+"/"+p.Name)
			}
		}
	}
	return out
}

// absent explains why a key is not set: it lists the rules that could set it, closest first.
func (e *explanation) absent(name string) error {
	fmt.Fprintf(e.w, "%s has no %s.\n", e.outcome.Node, printable(name))
	var able []*rules.RuleTrace
	for i := range e.traces {
		if e.names(&e.traces[i], name) {
			able = append(able, &e.traces[i])
		}
	}
	if len(able) == 0 {
		return foundError{fmt.Errorf("no rule names %s%s", name, e.suggest(name))}
	}
	slices.SortStableFunc(able, func(a, b *rules.RuleTrace) int { return tracing.Lacking(a) - tracing.Lacking(b) })
	fmt.Fprintf(e.w, "%s could set it, closest first:\n\n", plural(len(able), "rule"))
	for _, t := range able {
		e.rule(t)
	}
	return errFound
}

// names reports whether a rule could write a key.
func (e *explanation) names(t *rules.RuleTrace, name string) bool {
	full := e.world.opt.Keys.Qualify(name)
	rule := e.spec(t.Ref)
	if rule == nil {
		return false
	}
	for _, m := range []map[string]string{rule.Labels, rule.Annotations, rule.ExtendedResources} {
		for key := range m {
			if q := e.world.opt.Keys.Qualify(key); q == full || strings.Contains(key, "{") && sameShape(q, full) {
				return true
			}
		}
	}
	for _, c := range rule.NodeConditions {
		if c.Type == name {
			return true
		}
	}
	for _, taint := range rule.Taints {
		if taint.Key == name || taint.Key == full {
			return true
		}
	}
	short := strings.TrimPrefix(full, nfdv1alpha1.FeatureLabelNamespace+"/")
	if strings.Contains(rule.LabelsTemplate, short) {
		return true
	}
	return slices.ContainsFunc(rule.Actions, func(a nfdv1alpha1.Action) bool { return strings.Contains(string(a.Args.Raw), "/"+short) })
}

// sameShape reports whether a key with expressions can result in key: the literal text before and after the expressions must match.
func sameShape(pattern, key string) bool {
	before, _, _ := strings.Cut(pattern, "{")
	after := pattern[strings.LastIndexByte(pattern, '}')+1:]
	return strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
}

// spec returns the source of a rule. Rules from a base are found by name.
func (e *explanation) spec(ref rules.Ref) *nfdv1alpha1.Rule {
	for i := range e.world.rules {
		if e.world.rules[i].Name != ref.Object {
			continue
		}
		specs := []*nfdv1alpha1.NodeFeatureRuleSpec{&e.world.rules[i].Spec}
		for _, t := range e.world.templates {
			specs = append(specs, t)
		}
		for _, spec := range specs {
			for j := range spec.Rules {
				if spec.Rules[j].Name == ref.Rule {
					return &spec.Rules[j]
				}
			}
		}
	}
	return nil
}

func (e *explanation) suggest(name string) string {
	var known []string
	for _, m := range []map[string]string{e.outcome.Labels(), e.outcome.Annotations(), e.outcome.ExtendedResources(), e.outcome.NodeConditions()} {
		known = append(known, facts.SortedKeys(m)...)
	}
	if near := manifest.Nearest(e.world.opt.Keys.Qualify(name), known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
