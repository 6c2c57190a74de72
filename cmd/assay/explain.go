package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/held"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

type explainFlags struct {
	worldFlags
	files  []string
	output string
}

func newExplain() *cobra.Command {
	f := &explainFlags{}
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
	f.register(cmd)
	filesFlag(cmd, &f.files, "files or directories of rules that replace those of the same name in the cluster")
	cmd.ValidArgsFunction = completeKeys(&f.Flags)
	outputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	name, err := objectName(args[0], nodeKinds...)
	if err != nil {
		return err
	}
	if strings.Contains(name, ",") {
		return fmt.Errorf("explain shows one node: use one of %s", name)
	}
	args[0] = name
	w, err := f.load(cmd.Context(), want{node: args[0], nodes: true, features: true, devices: len(f.files) > 0, rules: true})
	if err != nil {
		return err
	}
	next := &applied{objects: w.rules}
	if len(f.files) > 0 {
		if next, err = w.applied(cmd, f.files, nil); err != nil {
			return err
		}
		w.rules = next.objects
	}
	program := w.appliedProgram(cmd, next)
	in := w.fleet.Input(args[0])
	e := &explanation{
		tracer:  tracer{traceOptions: traceOptions{taints: true, mask: w.opt.Mask, withholding: w.withholding()}, w: cmd.OutOrStdout(), s: styleOf(cmd.OutOrStdout())},
		world:   w,
		node:    w.nodes[args[0]],
		program: program, input: in, outcome: program.Eval(in), traces: program.Trace(in),
	}
	settings := w.desired()
	e.compared = settings.Compare(e.node, desired.Of(e.outcome))
	if len(args) == 1 {
		if f.output != "text" {
			return printObject(e.w, f.output, newResult(e.outcome, true))
		}
		e.tracer.outcome(e.outcome)
		if over := in.Facts.DevicesOver(); over != "" {
			fmt.Fprintf(e.w, "  %s %s\n", e.s.warn("!"), printable(over))
		}
		return nil
	}
	found := e.name(cmd.Context(), args[1])
	if f.output == "text" {
		return e.print(found)
	}
	if err := printObject(e.w, f.output, found); err != nil {
		return err
	}
	if len(found.Keys) == 0 {
		return errFound
	}
	return nil
}

// explanation explains single keys of a node.
type explanation struct {
	tracer
	world   *world
	node    *corev1.Node
	program *rules.Program
	input   rules.Input
	outcome *rules.Outcome
	traces  []rules.RuleTrace
	report  *held.Report // of the controller

	compared *desired.Comparison
	records  map[string]*provenance // by instance
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
		if t.Key == name || t.Key == full || keys.TaintName(t) == name {
			out = append(out, given{keys.Taint, keys.TaintName(t), t.Value})
		}
	}
	return out
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
	known := e.program.KeyNames()
	for _, m := range []map[string]string{e.outcome.Labels(), e.outcome.Annotations(), e.outcome.ExtendedResources(), e.outcome.NodeConditions()} {
		known = append(known, facts.SortedKeys(m)...)
	}
	return didYouMean(e.world.opt.Keys.Qualify(name), known)
}
