package suite

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/warning"
)

// Runner runs tests. It reads and compiles each file once. It is safe for concurrent use.
type Runner struct {
	interner *facts.Interner
	mu       sync.Mutex
	programs map[string]*once[*program]
	features map[string]*once[[]manifest.Published]
}

// once is a value that is computed on first use.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

// program holds compiled rules and their errors.
type program struct {
	*rules.Program
	problems []problem
}

// problem is an error in a file of rules.
type problem struct {
	manifest.Problem
	file string
	full string // the error with the object, as the API server prints it; empty for syntax errors
}

// String returns file:line:column: path: message, as assay lint does.
func (p problem) String() string { return p.file + ":" + p.Problem.String() }

// has reports whether the error contains a string, with or without its position.
func (p problem) has(text string) bool {
	return strings.Contains(p.String(), text) || strings.Contains(p.full, text)
}

// NewRunner returns a Runner.
func NewRunner() *Runner {
	return &Runner{
		interner: facts.NewInterner(),
		programs: map[string]*once[*program]{}, features: map[string]*once[[]manifest.Published]{},
	}
}

// Result is the result of a test.
type Result struct {
	Test *Test
	// Failure describes why the test failed, as a diff: - is expected, + is actual. It is empty if the test passed.
	Failure string
	// Updated is set if the expectation was updated.
	Updated bool
}

// Run runs one test. If update is set and the test is a directory, it writes the result as the new expectation.
func (r *Runner) Run(t *Test, update bool) Result {
	update = update && t.golden != ""
	if t.broken != nil && !update {
		return Result{Test: t, Failure: t.broken.Error()}
	}
	outcome, problems, err := r.eval(t)
	if err != nil {
		return Result{Test: t, Failure: err.Error()}
	}
	if len(t.errors) == 0 && len(problems) > 0 { // rules without the invalid parts could match more nodes
		return Result{Test: t, Failure: strings.Join(compareErrors(nil, problems), "\n")}
	}
	got := Expect(outcome)
	if update {
		changed, err := write(t.golden, got)
		if err != nil {
			return Result{Test: t, Failure: err.Error()}
		}
		return Result{Test: t, Updated: changed}
	}
	failures := compareErrors(t.errors, problems)
	if t.golden == "" || exists(t.golden) {
		failures = append(failures, t.expect.compare(got, t.whole)...)
	}
	return Result{Test: t, Failure: strings.Join(failures, "\n")}
}

func write(path string, e *Expectation) (bool, error) {
	data, err := yaml.Marshal(e)
	if err != nil {
		return false, err
	}
	if before, err := os.ReadFile(path); err == nil && string(before) == string(data) {
		return false, nil
	}
	return true, os.WriteFile(path, data, 0o644)
}

// compareErrors compares the errors in rules with the expected errors. If none are expected, it lists all errors, since a rule that
// is left out also changes the outputs.
func compareErrors(want []string, got []problem) []string {
	var out []string
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g problem) bool { return g.has(w) }) {
			out = append(out, "- error: "+w)
		}
	}
	if len(out) > 0 || len(want) == 0 {
		for _, g := range got {
			out = append(out, "+ error: "+g.String())
		}
	}
	return out
}

func (r *Runner) eval(t *Test) (*rules.Outcome, []problem, error) {
	opt, err := t.settings.options()
	if err != nil {
		return nil, nil, err
	}
	compiled, err := r.program(t.rules, opt, fmt.Sprintf("%v|%s|%s|%s|%v|%s", t.settings.Strict, t.settings.DefaultScope,
		t.settings.NodeScope, t.settings.Mask, t.settings.IgnoreFail, t.settings.FeatureSources))
	if err != nil {
		return nil, nil, err
	}
	var list []manifest.Published
	for _, path := range t.features {
		more, err := r.published(path)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, more...)
	}
	if t.facts != nil {
		own, err := manifest.Features(t.Name, t.facts, r.interner)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, own...)
	}
	node := gather.Node{Name: "node-1", Labels: t.settings.NodeLabels}
	for _, p := range list {
		if p.Node != "" {
			node.Name = p.Node
		}
	}
	if t.settings.Node != "" {
		node.Name = t.settings.Node
	}
	selected, err := gather.Select(gather.Policy{Namespace: "assay-system", Keys: opt.Keys}, node, nil, list)
	for _, p := range selected.Left() {
		return nil, nil, fmt.Errorf("NodeFeature %q cannot be used: %w", p.Name, p.Err)
	}
	return compiled.Program.Eval(selected.Input(node, r.interner)), compiled.problems, err
}

func (r *Runner) published(path string) ([]manifest.Published, error) {
	o := slot(r, r.features, path)
	o.Do(func() {
		var data []byte
		if data, o.err = read(path); o.err == nil {
			o.value, o.err = manifest.Features(path, data, r.interner)
		}
	})
	return o.value, o.err
}

func slot[T any](r *Runner, m map[string]*once[T], key string) *once[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m[key] == nil {
		m[key] = &once[T]{}
	}
	return m[key]
}

func (r *Runner) program(paths []string, opt rules.Options, settings string) (*program, error) {
	o := slot(r, r.programs, strings.Join(paths, "\x00")+"\x00"+settings)
	o.Do(func() { o.value, o.err = compile(paths, opt) })
	return o.value, o.err
}

// compile reads, reviews and compiles rules. Tests may expect the errors of the review.
func compile(paths []string, opt rules.Options) (*program, error) {
	files, err := ruleFiles(paths)
	if err != nil {
		return nil, err
	}
	p := &program{}
	var documents []*manifest.Document
	templates := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{}
	for _, path := range files {
		data, err := read(path)
		if err != nil {
			return nil, err
		}
		f := manifest.Parse(path, data)
		p.note(path, f.Problems, "")
		for _, d := range f.Documents {
			switch d.Kind {
			case manifest.KindTemplate:
				object, _ := review.Read(d)
				templates[d.Name] = review.Spec(object)
				documents = append(documents, d)
			case manifest.KindRule:
				documents = append(documents, d)
			}
		}
	}
	known := review.Known{Rules: opt, Templates: func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return templates[name], nil }}
	var sets []*rules.RuleSet
	for _, d := range documents {
		if set := p.review(d, known); d.Kind == manifest.KindRule {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 && len(p.problems) == 0 {
		return nil, fmt.Errorf("%s: no NodeFeatureRules found", strings.Join(paths, ", "))
	}
	slices.SortStableFunc(p.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.file, b.file), a.Compare(b.Position))
	})
	p.Program = rules.Link(opt, sets...)
	return p, nil
}

// review adds the errors of a document to the problems and returns its compiled rules. Missing bases are errors here, because the
// outcome of the test would be incomplete.
func (p *program) review(d *manifest.Document, known review.Known) *rules.RuleSet {
	_, shape, found := review.Document(d, known)
	p.note(d.File().Name, append(d.CheckType(), shape...), "")
	errs := found.Errors
	for _, w := range found.Warnings {
		if w.Path == "spec.basedOn" && w.Rank == warning.Defect {
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: w.Path, BadValue: field.OmitValueType{}, Detail: w.Message})
		}
	}
	for _, e := range errs {
		p.note(d.File().Name, review.Problems(d, review.Findings{Errors: field.ErrorList{e}}), d.Name+": "+e.Error())
	}
	return found.Set
}

// note adds the errors of a list to the problems.
func (p *program) note(file string, list []manifest.Problem, full string) {
	for _, e := range list {
		if e.Severity == manifest.Error {
			p.problems = append(p.problems, problem{Problem: e, file: file, full: full})
		}
	}
}

// ruleFiles returns the YAML files in paths. Files of a directory are sorted.
func ruleFiles(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		for _, pattern := range []string{"*.yaml", "*.yml"} {
			list, err := filepath.Glob(filepath.Join(path, pattern))
			if err != nil {
				return nil, err
			}
			out = append(out, slices.DeleteFunc(list, func(f string) bool { return strings.Contains(f, ".test.") })...)
		}
	}
	slices.Sort(out)
	return out, nil
}
