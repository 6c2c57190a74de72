package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/check"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/cmd/assay/report"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/rules/review"
)

type diffFlags struct {
	worldFlags
	files  []string
	nodes  string
	output string
	remove []string
}

func newDiff() *cobra.Command {
	f := &diffFlags{}
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
	f.register(cmd)
	filesFlag(cmd, &f.files, "files or directories of rules")
	cmd.ValidArgsFunction = completeYAML
	cmd.Flags().StringVar(&f.nodes, "nodes", "", "nodes to compare, separated by commas: names and ranges such as n[1-20]; all nodes by default")
	cmd.Flags().StringSliceVar(&f.remove, "remove", nil, "names of rule objects to treat as deleted")
	outputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

// change is a change on one or more nodes.
type change struct {
	Op    string   `json:"op"` // add, remove, change
	Kind  string   `json:"kind"`
	Key   string   `json:"key"`
	Old   string   `json:"old,omitempty"`
	New   string   `json:"new,omitempty"`
	Nodes []string `json:"nodes"`
}

func (f *diffFlags) run(cmd *cobra.Command, files []string) error {
	if len(files)+len(f.remove) == 0 {
		return fmt.Errorf("no input: use assay diff FILE…")
	}
	w, err := f.load(cmd.Context(), want{nodes: true, features: true, devices: len(files) > 0, rules: true})
	if err != nil {
		return err
	}
	before, broken := w.program(cmd.Context(), w.rules)
	note(cmd, broken)
	next, err := w.applied(cmd, files, f.remove)
	if err != nil {
		return err
	}
	after := w.appliedProgram(cmd, next)
	if len(next.custom) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: custom rules of the worker are added: labels that only its present rules give stay in the comparison")
	}
	names := w.fleet.Names()
	if f.nodes != "" {
		if names, err = w.chosen(f.nodes); err != nil {
			return err
		}
	}
	kept := newKeptDiff(w, before, after)
	kept.read(cmd)
	steps, withholding := make([][]plan.Step, len(names)), w.withholding()
	input.Each(len(names), func(i int) {
		in := w.fleet.Input(names[i])
		was, is := before.Eval(in), after.Eval(in)
		steps[i] = kept.steps(w.nodes[names[i]], was, is, w.settings.EnableTaints, between(was, is, w.settings.EnableTaints))
	})
	list := slices.DeleteFunc(collectChanges(names, steps), func(c *change) bool {
		why := withholding.Withholds(keys.Kind(c.Kind))
		if why != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s %s is not written on nodes: %s\n", c.Kind, printable(c.Key), why)
		}
		return why != ""
	})
	return printChangeList(cmd, list, len(names), f.output)
}

// applied are the rules of the cluster after files are applied.
type applied struct {
	objects []nfdv1alpha1.NodeFeatureRule
	custom  []*rules.RuleSet // custom rules of the worker, in the files
}

// appliedProgram compiles rules, and prints which of them are left out.
func (w *world) appliedProgram(cmd *cobra.Command, next *applied) *rules.Program {
	program, broken := w.program(cmd.Context(), next.objects)
	note(cmd, broken)
	if len(next.custom) == 0 {
		return program
	}
	return rules.Link(w.opt, slices.Concat(program.Sets(), next.custom)...)
}

// applied returns the rules of the world without those to remove, and with those in files added or replaced.
func (w *world) applied(cmd *cobra.Command, files, remove []string) (*applied, error) {
	next := slices.Clone(w.rules)
	var known []string
	for i := range w.rules {
		known = append(known, w.rules[i].Name)
	}
	for _, name := range remove {
		left := slices.DeleteFunc(slices.Clone(next), func(r nfdv1alpha1.NodeFeatureRule) bool { return r.Name == name })
		if len(left) == len(next) {
			return nil, notFound(nfdv1alpha1.NodeFeatureRuleResource.GroupResource(), name, didYouMean(name, known))
		}
		next = left
	}
	paths, err := input.Paths(files)
	if err != nil {
		return nil, err
	}
	found := len(remove) > 0
	all := input.Manifests(paths, cmd.InOrStdin())
	checker, err := rejected(cmd, w, all)
	if err != nil {
		return nil, err
	}
	var custom []*rules.RuleSet
	for _, file := range all {
		_, sets := checker.CustomRules(file)
		custom = append(custom, sets...)
		for _, d := range file.Documents {
			if d.Kind != manifest.KindRule && d.Kind != manifest.KindTemplate {
				continue
			}
			found = true
			var object nfdv1alpha1.NodeFeatureRule
			d.Decode(&object) // already reported
			if d.Kind == manifest.KindTemplate {
				w.templates[object.Name] = &object.Spec
				continue
			}
			if i := slices.IndexFunc(next, func(r nfdv1alpha1.NodeFeatureRule) bool { return r.Name == object.Name }); i >= 0 {
				object.UID, object.CreationTimestamp = next[i].UID, next[i].CreationTimestamp // applying keeps them
				next = slices.Delete(next, i, i+1)
			}
			next = append(next, object)
		}
	}
	if !found && len(custom) == 0 {
		return nil, noRules(files)
	}
	return &applied{next, custom}, nil
}

// rejected prints the errors in files that the cluster would reject: applying these files would change nothing. It returns the checker of
// files without errors.
func rejected(cmd *cobra.Command, w *world, files []*manifest.File) (*check.Checker, error) {
	known := review.Known{Rules: w.opt, DefaultTemplate: w.settings.DefaultTemplate, AllTemplates: true}
	known.Templates = func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.templates[name], nil }
	checker := check.New(known, files...)
	set := &ruleFiles{files: files}
	for _, file := range files {
		set.findings = append(set.findings, checker.File(file)...)
	}
	if report.Errors(set.findings) == 0 {
		return checker, nil
	}
	set.print(cmd.ErrOrStderr(), true)
	return nil, errFound
}

// between returns the differences between two outcomes of a node. If a rule has failed, the node keeps its current state.
func between(before, after *rules.Outcome, taints bool) []plan.Step {
	if after.Failed != nil {
		if before.Failed != nil {
			return nil
		}
		return []plan.Step{{Op: plan.Add, Kind: "failure", Key: after.Failed.String(), New: after.Failed.Message}}
	}
	old, now := keysOf(before, taints), keysOf(after, taints)
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
func keysOf(o *rules.Outcome, taints bool) map[flatKey]string {
	out := map[flatKey]string{}
	for g := range o.Given() {
		if taints || g.Kind != keys.Taint {
			out[flatKey{g.Kind, g.Key}] = g.Value
		}
	}
	return out
}

// collectChanges groups equal changes of several nodes.
func collectChanges(names []string, steps [][]plan.Step) []*change {
	type id struct{ op, kind, key, old, now string }
	all := map[id]*change{}
	var out []*change
	for i, list := range steps {
		for _, s := range list {
			k := id{string(s.Op), string(s.Kind), s.Key, s.Old, s.New}
			if all[k] == nil {
				all[k] = &change{Op: k.op, Kind: k.kind, Key: k.key, Old: k.old, New: k.now}
				out = append(out, all[k])
			}
			all[k].Nodes = append(all[k].Nodes, names[i])
		}
	}
	slices.SortFunc(out, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Old+a.New, b.Old+b.New))
	})
	return out
}

func printChangeList(cmd *cobra.Command, list []*change, nodes int, format string) error {
	w := cmd.OutOrStdout()
	if format != "text" {
		if list == nil {
			list = []*change{}
		}
		if err := printObject(w, format, list); err != nil {
			return err
		}
	} else {
		printChangeText(w, list, nodes)
	}
	if len(list) > 0 {
		return errFound
	}
	return nil
}

func printChangeText(w io.Writer, list []*change, nodes int) {
	s := styleOf(w)
	touched := map[string]bool{}
	for _, c := range list {
		for _, n := range c.Nodes {
			touched[n] = true
		}
		text := fmt.Sprintf("%s %s", c.Kind, line(c.Key, c.New))
		switch c.Op {
		case "add", "adopt":
			text = s.good("+ " + printable(text))
		case "remove", "forget":
			text = s.bad("- " + printable(fmt.Sprintf("%s %s", c.Kind, line(c.Key, c.Old))))
		default:
			text = s.warn("~ " + printable(fmt.Sprintf("%s %s=%s -> %s", c.Kind, c.Key, c.Old, c.New)))
		}
		fmt.Fprintf(w, "%s\n    %s\n", text, s.faint(someNodes(c.Nodes, nodes)))
	}
	if len(list) == 0 {
		fmt.Fprintf(w, "nothing would change on %s\n", clip.Count(nodes, "node"))
		return
	}
	fmt.Fprintf(w, "%s on %d of %s\n", clip.Count(len(list), "change"), len(touched), clip.Count(nodes, "node"))
}

// maxNamed is the maximum number of nodes in the output of one change.
const maxNamed = 6

func someNodes(names []string, all int) string {
	if len(names) == all && all > 1 {
		return fmt.Sprintf("on all %d nodes", all)
	}
	if len(names) > maxNamed {
		return fmt.Sprintf("on %d nodes: %s, …", len(names), strings.Join(names[:maxNamed], ", "))
	}
	return "on " + strings.Join(names, ", ")
}
