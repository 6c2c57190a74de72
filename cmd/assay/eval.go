package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/check"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
)

// evalFlags are the flags of eval.
type evalFlags struct {
	policyFlags
	rules    []string
	features []string
	node     string
	metadata string
	own      string
	output   string
	quiet    bool
	matched  bool
	all      bool
}

func newEval() *cobra.Command {
	f := &evalFlags{}
	cmd := &cobra.Command{
		Use:   "eval [-f] RULES… [--features FILE] [--node NAME]",
		Short: "Show what rules make of a node, and why",
		Long: `Show what rules make of a node, and why.

The features of the node come from files: NodeFeatures as kubectl prints them, what "assay scan -o nodefeature" or "assay
capture" has written, or bare features (a map with flags, attributes and instances). Several files, or several NodeFeatures
of one node, are merged as in the cluster.

The exit code is 1 if a rule is wrong or could not be evaluated; everything else is evaluated and printed all the same.`,
		Example: `  assay eval rules.yaml --features node.yaml
  assay eval -f rules/ --features node.yaml --node node-1 -o json
  assay scan -o nodefeature | assay eval rules.yaml --features -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.rules = append(f.rules, args...)
			return f.run(cmd)
		},
	}
	cmd.Flags().StringSliceVarP(&f.rules, "filename", "f", nil, "files or directories of rules")
	cmd.Flags().StringSliceVar(&f.features, "features", nil, "files of features; - for standard input")
	cmd.Flags().StringVar(&f.node, "node", "", "name of the node")
	cmd.Flags().StringVar(&f.metadata, "node-labels", "", "file with the Node, whose labels and annotations rules may read")
	cmd.Flags().StringVar(&f.own, "own-namespace", "assay-system", "namespace of Assay, whose NodeFeatures are merged first")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not print warnings about the rules")
	cmd.Flags().BoolVar(&f.matched, "matched", false, "leave out rules that do not match (text)")
	cmd.Flags().BoolVar(&f.all, "all", false, "show labels that NodeFeatures ask for directly as well (text)")
	f.policyFlags.register(cmd.Flags())
	outputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *evalFlags) run(cmd *cobra.Command) error {
	if len(f.rules) == 0 {
		return errors.New("which rules? name files or directories: assay eval RULES…")
	}
	opt, err := f.options()
	if err != nil {
		return err
	}
	set, err := loadRules(cmd, f.rules, opt)
	if err != nil {
		return err
	}
	in, err := f.input(cmd, opt)
	if err != nil {
		return err
	}
	if !f.quiet || set.errors > 0 {
		set.print(cmd.ErrOrStderr(), f.quiet)
	}
	return printEvaluation(cmd, set, in, opt, f.output,
		traceOptions{matched: f.matched, all: f.all, taints: f.taints, mask: opt.Mask})
}

// printEvaluation evaluates rules for a node and prints what they come to. The error says whether all went well.
func printEvaluation(cmd *cobra.Command, set *ruleFiles, in rules.Input, opt rules.Options, format string, how traceOptions) error {
	program := rules.Link(opt, set.sets...)
	outcome := program.Eval(in)
	if format == "json" || format == "yaml" {
		if err := printObject(cmd.OutOrStdout(), format, newResult(outcome, how.taints, set.broken)); err != nil {
			return err
		}
	} else {
		printTrace(cmd.OutOrStdout(), program.Trace(in), outcome, how)
	}
	for _, r := range outcome.Rules() {
		if r.Err != nil {
			return errFound
		}
	}
	if set.errors > 0 {
		return errFound
	}
	return nil
}

// input reads what is known of the node.
func (f *evalFlags) input(cmd *cobra.Command, opt rules.Options) (rules.Input, error) {
	if len(f.features) == 0 {
		return rules.Input{}, errors.New("which features? --features FILE, or --features - for standard input")
	}
	in := facts.NewInterner()
	list, err := readFeatures(f.features, cmd.InOrStdin(), in)
	if err != nil {
		return rules.Input{}, err
	}
	name, list, err := chooseNode(f.node, list)
	if err != nil {
		return rules.Input{}, err
	}
	node := rules.Node{Name: name}
	if f.metadata != "" {
		data, err := input.Read(f.metadata, cmd.InOrStdin())
		if err != nil {
			return rules.Input{}, err
		}
		object, err := manifest.Node(f.metadata, data)
		if err != nil {
			return rules.Input{}, err
		}
		node = nodeOf(object)
		if f.node != "" {
			node.Name = f.node
		}
	}
	return manifest.Gather(node, list, f.own, &opt.Keys, in), nil
}

func readFeatures(files []string, stdin io.Reader, in *facts.Interner) ([]manifest.Published, error) {
	paths, err := input.Paths(files)
	if err != nil {
		return nil, err
	}
	var list []manifest.Published
	for _, path := range paths {
		data, err := input.Read(path, stdin)
		if err != nil {
			return nil, err
		}
		more, err := manifest.Features(path, data, in)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// unnamed is what a node is called whose name nobody has said.
const unnamed = "node"

// chooseNode picks what is published about a node. Without a name there must be no choice. If nothing is about the named
// node, everything is taken to be: that is how one asks what the features would mean elsewhere.
func chooseNode(name string, list []manifest.Published) (string, []manifest.Published, error) {
	about := map[string]bool{}
	var mine []manifest.Published
	for _, p := range list {
		if p.Node != "" {
			about[p.Node] = true
		}
		if p.Node == name || p.Node == "" {
			mine = append(mine, p)
		}
	}
	switch {
	case name != "" && about[name]:
		return name, mine, nil
	case len(about) > 1:
		return "", nil, fmt.Errorf("the features are about %d nodes; choose one: --node %s", len(about), sortedKeys(about)[0])
	case name != "":
		return name, list, nil
	case len(about) == 1:
		return sortedKeys(about)[0], list, nil
	}
	return unnamed, list, nil
}

// ruleFiles are rules that were read from files.
type ruleFiles struct {
	sets     []*rules.RuleSet
	files    []*manifest.File
	findings []check.Finding
	errors   int
	broken   []brokenRule
}

// brokenRule is a rule that did not compile.
type brokenRule struct{ object, rule, message string }

// loadRules reads and compiles rules. Mistakes are kept, not returned.
func loadRules(cmd *cobra.Command, names []string, opt rules.Options) (*ruleFiles, error) {
	paths, err := input.Paths(names)
	if err != nil {
		return nil, err
	}
	out := &ruleFiles{files: input.Manifests(paths, cmd.InOrStdin())}
	checker := check.New(check.Options{Rules: opt, Read: func(p string) ([]byte, error) { return input.Read(p, nil) }}, out.files...)
	for _, file := range out.files {
		for _, p := range file.Problems {
			out.findings = append(out.findings, check.Finding{File: file.Name, Problem: p})
		}
		for _, d := range file.Documents {
			if d.Kind != manifest.KindRule {
				continue
			}
			object, set, problems := checker.Rule(d)
			out.sets = append(out.sets, set)
			for _, p := range append(d.CheckType(), problems...) {
				out.findings = append(out.findings, check.Finding{File: file.Name, Problem: p})
			}
			out.broken = append(out.broken, missing(object.Name, check.RuleNames(object), set, problems)...)
		}
	}
	check.Sort(out.findings)
	out.errors = check.Errors(out.findings)
	if len(out.sets) == 0 && out.errors == 0 {
		return nil, fmt.Errorf("%s: there are no NodeFeatureRules in it", names[0])
	}
	return out, nil
}

// missing returns the rules of an object that are not in what it compiled to, with what is wrong with each.
func missing(object string, names []string, set *rules.RuleSet, problems []manifest.Problem) []brokenRule {
	compiled := map[int]bool{}
	for _, ref := range rules.Link(rules.Options{}, set).Rules() {
		compiled[ref.Index] = true
	}
	var out []brokenRule
	for i, name := range names {
		if compiled[i] {
			continue
		}
		b := brokenRule{object: object, rule: name, message: "it does not compile"}
		for _, p := range problems {
			if p.Severity == manifest.Error && within(p.Path, i) {
				b.message = p.Path + ": " + p.Message
				break
			}
		}
		out = append(out, b)
	}
	return out
}

func within(path string, rule int) bool {
	prefix := fmt.Sprintf("spec.rules[%d]", rule)
	return len(path) >= len(prefix) && path[:len(prefix)] == prefix
}

// print shows what is wrong with the rules: mistakes as lint does, warnings on a line each.
func (r *ruleFiles) print(w io.Writer, quiet bool) {
	byName := map[string]*manifest.File{}
	for _, f := range r.files {
		byName[f.Name] = f
	}
	s := styleOf(w)
	for _, f := range r.findings {
		if f.Severity == manifest.Error || !quiet {
			printFinding(w, s, byName[f.File], f, f.Severity == manifest.Error)
		}
	}
}
