package rules

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// Limits on the evaluation of one node. They count steps, not time, so that the same rules give the same result on every
// machine, however busy.
const (
	// NodeBudget is how many steps all rules together may take on one node: some ten milliseconds' worth.
	NodeBudget = 100_000
	// RuleBudget is how many steps one rule may take, so that the worst of them leaves the others theirs.
	RuleBudget = 20_000
)

// What a rule does besides computing costs steps too, as many as take about the same time.
const (
	// bytesPerStep is how much text is copied in a step: a variable that is extended in a loop is copied each time.
	bytesPerStep = 48
	// stepsPerOutput is what an item of a loop costs for each output.
	stepsPerOutput = 2
	// instancesPerStep is how many instances are looked at in a step.
	instancesPerStep = 16
)

const (
	// MaxSaid is how many log lines, and how many Events, a rule may ask for on one node: one for each item of the longest
	// loop.
	MaxSaid = 256
	// MaxRejected is how many outputs that a rule asks for and does not get are named.
	MaxRejected = 256
	// MaxTaints is how many taints a rule may give a node, by its list and its actions together.
	MaxTaints = 64
)

// Node is what rules may know of a node besides its features.
type Node struct {
	Name string
	// Labels and Annotations without those that rules have written: a rule that selected nodes by what rules write would
	// chase its own tail.
	Labels, Annotations map[string]string
}

// Publisher is one of the NodeFeatures that the facts of a node were merged from.
type Publisher struct {
	// Name is namespace/name.
	Name  string
	Facts *facts.Facts
}

// Input is everything that an outcome depends on besides the program.
type Input struct {
	Node Node
	// Facts of the node, merged.
	Facts *facts.Facts
	// Publishers are what Facts were merged from, in that order; needed by rules with featureSources only.
	Publishers []Publisher
	// Labels that NodeFeatures ask for directly, merged, with their namespace.
	Labels map[string]string
}

// Eval evaluates all rules for one node.
func (p *Program) Eval(in Input) *Outcome { return p.eval(in, nil) }

// eval evaluates all rules; remember may offer results that are known already.
func (p *Program) eval(in Input, remember *memory) *Outcome {
	o := newOutcome(p, &in)
	o.results = make([]*result, len(p.rules))
	e := newEvaluation(p, &in)
	defer func() { o.steps = NodeBudget - e.nodeBudget }()
	for i, r := range p.rules {
		if o.Failed != nil {
			o.results[i] = skippedByFailure
			continue
		}
		res := e.remembered(r, remember)
		o.results[i] = res
		e.show(r, res)
		if res.failed != nil && !p.opt.IgnoreFail {
			o.Failed = &Failure{Ref: r.ref, Message: res.failed.Message}
		}
	}
	return o
}

var skippedByFailure = &result{skipped: "a rule before it has failed the node"}

func newEvaluation(p *Program, in *Input) *evaluation {
	e := &evaluation{program: p, in: in, src: facts.NewOverlay(in.Facts), nodeBudget: NodeBudget}
	if !p.allMatched {
		e.matched.only = p.matched
	}
	return e
}

// evaluation is the state of evaluating all rules for one node. It implements expr.Env. Not safe for concurrent use.
type evaluation struct {
	program *Program
	in      *Input
	src     *facts.Overlay
	matched matchedState
	vars    map[int]map[string]expr.Value // by set: variables keep their kinds within their object

	nodeBudget, ruleBudget int
	looked                 match.Work // what looking through features for the rule at hand has cost
	templates              tmpl.Spent // what the templates of the rule at hand have cost

	// of the rule at hand
	rule     *rule
	result   *result
	item     expr.Value
	elements []match.FeatureElements
	runs     [][]match.FeatureElements // what each of its matchers matched
	local    map[string]expr.Value     // variables that the rule itself has given so far
	partial  error                     // what could not be evaluated for some instance
	chosen   facts.Source              // what its publishers have published, if it names any; nil: not merged yet
}

// remembered returns the rule's result, from memory if it depends on nothing but features that were seen before. It takes as many
// steps then as it took the first time. Where a node has not enough left for any rule, its result is its own.
func (e *evaluation) remembered(r *rule, m *memory) *result {
	if why := e.skips(r.set); why != "" {
		return &result{skipped: why}
	}
	if m == nil || !r.pure || e.nodeBudget < RuleBudget {
		return e.run(r)
	}
	key, ok := e.memoryKey(r)
	if !ok {
		return e.run(r)
	}
	if res := m.get(key); res != nil {
		e.nodeBudget -= res.steps
		return res
	}
	res := e.run(r)
	m.put(key, res)
	return res
}

// run evaluates one rule. Nothing that goes wrong in it reaches another rule.
func (e *evaluation) run(r *rule) *result {
	e.begin(r)
	src := e.sourceFor(r.set)
	matched, err := e.matches(r, src)
	if err != nil {
		return e.fail(r, err)
	}
	switch {
	case e.partial != nil:
		// falls through to a result of its own
	case !matched:
		return notMatched
	case r.fixed != nil:
		return r.fixed
	}
	if !matched {
		return &result{partial: e.partial}
	}
	e.result = &result{matched: true, rejected: r.rejected, partial: e.partial}
	if n := r.assignments(); n > 0 && r.loop == nil && r.varsTemplate == nil && r.labelsTemplate == nil {
		e.result.outputs = make([]output, 0, n)
	}
	before := e.ruleBudget
	err = e.produce(r)
	steps := before - e.ruleBudget
	e.nodeBudget -= steps
	if err == nil && e.result.matched {
		if err = e.derive(e.result.derived); err == nil {
			e.result.vars = e.local
		}
	}
	if err != nil {
		e.result = e.fail(r, err)
	}
	if e.result == notMatched {
		e.result = &result{} // of its own, since it has taken steps to find that out
	}
	e.result.steps = steps
	return e.result
}

// begin forgets what was of the rule before.
func (e *evaluation) begin(r *rule) {
	e.rule, e.ruleBudget = r, min(RuleBudget, e.nodeBudget)
	e.item, e.elements, e.runs, e.local, e.result = expr.Value{}, nil, nil, nil, nil
	e.partial, e.chosen, e.looked, e.templates = nil, nil, 0, tmpl.Spent{}
}

// notMatched is the result of every rule that does not match.
var notMatched = &result{}

// fail is the result of a rule that could not be evaluated. Its outputs are all or nothing, so there are none.
func (e *evaluation) fail(r *rule, err error) *result {
	if errors.Is(err, expr.ErrBudget) {
		err = fmt.Errorf("stopped: it takes more than %d steps (%w)", RuleBudget, expr.ErrBudget)
	}
	if r.set.sensitive {
		err = errors.New(terse(err))
	}
	return &result{err: err}
}

// skips says why the rules of a set are not looked at on this node.
func (e *evaluation) skips(s *RuleSet) string {
	if s.selector != nil && !s.selector.Matches(labels.Set(e.in.Node.Labels)) {
		return "the nodeSelector does not select the node"
	}
	if s.scope == "" {
		return ""
	}
	scope := e.in.Node.Labels[assayv1alpha1.ScopeLabel]
	if scope == "" {
		scope = e.program.opt.DefaultNodeScope
	}
	if scope != s.scope {
		return fmt.Sprintf("the node's scope is %q, not %q", scope, s.scope)
	}
	return ""
}

// matches evaluates what a rule requires, but for conditions that are evaluated for each item of the rule's loop.
func (e *evaluation) matches(r *rule, src facts.Source) (bool, error) {
	want := r.wantsElements()
	if len(r.any) > 0 {
		ok, err := e.matchesAny(r, src, want)
		if !ok || err != nil {
			return false, err
		}
	}
	if r.features != nil {
		res, err := r.features.EvalWithin(&e.looked, src, want)
		e.note(res.Errors)
		if !res.OK || err != nil {
			return false, err
		}
		if want {
			e.runs = append(e.runs, res.Matched)
			e.elements = append(e.elements, res.Matched...)
		}
	}
	if r.loop != nil {
		return true, nil
	}
	return e.conditionsHold(r)
}

// matchesAny evaluates the alternatives. All of them if a template is to see the elements of each, else up to the first
// that holds.
func (e *evaluation) matchesAny(r *rule, src facts.Source, want bool) (bool, error) {
	found := false
	for _, m := range r.any {
		res, err := m.EvalWithin(&e.looked, src, want)
		e.note(res.Errors)
		if err != nil {
			return false, err
		}
		if !res.OK {
			continue
		}
		found = true
		if !want {
			break
		}
		e.runs = append(e.runs, res.Matched)
		e.elements = append(e.elements, res.Matched...)
	}
	return found, nil
}

// note keeps what could not be evaluated for single instances, which then count as not matching: no reason to drop the
// rule, and worth a word in its status.
func (e *evaluation) note(errs []*match.EvalError) {
	if len(errs) > 0 && e.partial == nil {
		e.partial = errs[0]
	}
}

func (e *evaluation) conditionsHold(r *rule) (bool, error) {
	for i, c := range r.conditions {
		ok, err := c.Eval(e)
		if err != nil {
			return false, fmt.Errorf("conditions[%d]: %w", i, err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// sourceFor is what the rules of a set see: everything, or only what the publishers they trust have published, which is
// merged once a rule.
func (e *evaluation) sourceFor(s *RuleSet) facts.Source {
	if s.sources == nil {
		return e.src
	}
	if e.chosen == nil {
		e.chosen = s.sources.choose(e)
	}
	return e.chosen
}

// show lets the rules after this one see what it produced, wherever its result comes from.
func (e *evaluation) show(r *rule, res *result) {
	if len(e.program.chained) > 0 && e.matched.add(r, res) {
		e.showMatched(e.src)
	}
	if !r.set.readsVars {
		return
	}
	for name, value := range res.vars {
		e.keepVar(r, name, value)
	}
}

// showMatched makes what rules have produced so far visible to matchers as rule.matched.
func (e *evaluation) showMatched(src *facts.Overlay) {
	if !e.matched.exists {
		return
	}
	src.SetFunc(nfdv1alpha1.RuleMatchedFeature, func() *facts.Feature {
		return &facts.Feature{Attributes: facts.NewAttributes(e.matched.values)}
	})
}

// keepVar lets later rules of the same object see a variable of this rule in its kind.
func (e *evaluation) keepVar(r *rule, name string, value expr.Value) {
	if e.vars == nil {
		e.vars = map[int]map[string]expr.Value{}
	}
	if e.vars[r.set.index] == nil {
		e.vars[r.set.index] = map[string]expr.Value{}
	}
	if value.Kind() == expr.Missing {
		delete(e.vars[r.set.index], name)
		return
	}
	e.vars[r.set.index][name] = value
}

// terse is an error without what it is about: that of a sensitive rule could repeat a value.
func terse(err error) string {
	if errors.Is(err, expr.ErrBudget) {
		return "it was stopped for taking too many steps"
	}
	return "it could not be evaluated; the rule is sensitive, so nothing more is said"
}
