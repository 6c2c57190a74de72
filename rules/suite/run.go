package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
)

// Runner runs tests. It reads and compiles each file once, however many tests use it. It is safe for concurrent use.
type Runner struct {
	interner *facts.Interner
	cache    *rules.Cache
	mu       sync.Mutex
	programs map[string]*once[*program]
	features map[string]*once[[]manifest.Published]
}

// once is a value that is made by whoever asks first.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

// program is compiled rules, and what was wrong with them.
type program struct {
	*rules.Program
	problems []string
}

// NewRunner returns a Runner.
func NewRunner() *Runner {
	return &Runner{
		interner: facts.NewInterner(), cache: rules.NewCache(),
		programs: map[string]*once[*program]{}, features: map[string]*once[[]manifest.Published]{},
	}
}

// Result is what became of a test.
type Result struct {
	Test *Test
	// Failure says why it failed, as a diff: - is what was expected, + what came out. Empty if it passed.
	Failure string
	// Updated says that the expectation was written anew.
	Updated bool
}

// Run runs one test. With update it writes what comes out as what is expected, if the test is a directory.
func (r *Runner) Run(t *Test, update bool) Result {
	update = update && t.golden != ""
	if t.broken != nil && !update {
		return Result{Test: t, Failure: t.broken.Error()}
	}
	outcome, problems, err := r.eval(t)
	if err != nil {
		return Result{Test: t, Failure: err.Error()}
	}
	if len(t.errors) == 0 && len(problems) > 0 { // what is left of the rules would match more than was written
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

// compareErrors checks what Compile said. A test that expects no errors is told of them, since a rule that was left out
// explains everything else.
func compareErrors(want, got []string) []string {
	var out []string
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, w) }) {
			out = append(out, "- error: "+w)
		}
	}
	if len(out) > 0 || len(want) == 0 {
		for _, g := range got {
			out = append(out, "+ error: "+g)
		}
	}
	return out
}

func (r *Runner) eval(t *Test) (*rules.Outcome, []string, error) {
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
	node := rules.Node{Name: "node-1", Labels: t.settings.NodeLabels}
	for _, p := range list {
		if p.Node != "" {
			node.Name = p.Node
		}
	}
	if t.settings.Node != "" {
		node.Name = t.settings.Node
	}
	in := rules.Gather{Namespace: "assay-system", Keys: &opt.Keys, Interner: r.interner}.Input(node, nil, list)
	return r.cache.Eval(compiled.Program, in, nil), compiled.problems, nil
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

// compile reads and compiles rules. What is wrong with them is what a test may expect.
func compile(paths []string, opt rules.Options) (*program, error) {
	p := &program{}
	var objects []*nfdv1alpha1.NodeFeatureRule
	templates := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{}
	files, err := ruleFiles(paths)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		data, err := read(path)
		if err != nil {
			return nil, err
		}
		list, more, problems := decodeRules(path, data)
		objects, p.problems = append(objects, list...), append(p.problems, problems...)
		for name, spec := range more {
			templates[name] = spec
		}
	}
	if len(objects) == 0 && len(p.problems) == 0 {
		return nil, fmt.Errorf("%s: there are no NodeFeatureRules in it", strings.Join(paths, ", "))
	}
	lookup := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return templates[name], nil }
	var sets []*rules.RuleSet
	for _, object := range objects {
		spec := &object.Spec
		if len(spec.BasedOn) > 0 {
			whole, err := compose.Assemble(compose.Document{Name: object.Name, Spec: spec}, lookup)
			if err != nil {
				p.problems = append(p.problems, object.Name+": "+err.Error())
			} else {
				spec = whole.Spec
			}
		}
		set, report := rules.CompileSpec(object.Name, spec, opt)
		sets = append(sets, set)
		for _, e := range report.Errors {
			p.problems = append(p.problems, object.Name+": "+e.Error())
		}
	}
	p.Program = rules.Link(opt, sets...)
	return p, nil
}

// ruleFiles returns the YAML files that paths name, those of directories sorted.
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
