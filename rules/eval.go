package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// Limits on the evaluation of one node. They count steps, not time, so that the same rules give the same result on every machine,
// regardless of its load.
const (
	// NodeBudget is the maximum number of steps of all rules together on one node, about 10 ms.
	NodeBudget = 100_000
	// RuleBudget is the maximum number of steps of one rule, so that a costly rule leaves enough for the others.
	RuleBudget = 20_000
)

// Costs, in steps, of work other than evaluating expressions. All steps take about the same time.
const (
	// bytesPerStep is the number of bytes copied per step: each extension of a variable in a loop copies it.
	bytesPerStep = 48
	// stepsPerOutput is the cost of each output for each item of a loop.
	stepsPerOutput = 2
	// instancesPerStep is the number of instances read per step.
	instancesPerStep = 16
)

const (
	// MaxSaid is the maximum number of log lines, and of Events, of a rule on one node: one for each item of the longest loop.
	MaxSaid = 256
	// MaxRejected is the maximum number of rejected outputs of a rule that are recorded.
	MaxRejected = 256
	// MaxNodeConditions is the maximum number of conditions of the Node in a rule, as in its definition.
	MaxNodeConditions = 32
	// MaxTaints is the maximum number of taints that a rule may add to a node, in its list and its actions together.
	MaxTaints = 64
)

// Node holds what rules may read about a node in addition to its features.
type Node struct {
	Name string
	// Labels and Annotations exclude those written by rules, so that a rule cannot select nodes by its own outputs.
	Labels, Annotations map[string]string
}

// Publisher is one of the NodeFeatures from which the facts of a node were merged.
type Publisher struct {
	// Name is namespace/name.
	Name  string
	Facts *facts.Facts
}

// Input is the input of an evaluation, in addition to the program.
type Input struct {
	Node Node
	// Facts are the merged facts of the node.
	Facts *facts.Facts
	// Worker are the facts of the object of the node's own worker, which are among Facts; nil: there is none. Rules do not need them.
	Worker *facts.Facts
	// Publishers are the NodeFeatures that Facts were merged from, in merge order. Only rules with featureSources need them.
	Publishers []Publisher
	// Labels are the labels that NodeFeatures request directly, merged, with their namespace.
	Labels map[string]string
}

// Eval evaluates all rules for one node. It keeps nothing: equal inputs are evaluated again.
func (p *Program) Eval(in Input) *Outcome {
	o := newOutcome(p, &in)
	o.results = make([]*result, len(p.rules))
	e := newEvaluation(p, &in)
	defer func() { o.steps = NodeBudget - e.nodeBudget }()
	for i, r := range p.rules {
		if o.Failed != nil {
			o.results[i] = skippedByFailure
			continue
		}
		res := e.run(r)
		o.results[i] = res
		e.show(r, res)
		if res.failed != nil && !p.opt.IgnoreFail {
			o.Failed = &Failure{Ref: r.ref, Message: res.failed.Message}
		}
	}
	return o
}

var skippedByFailure = &result{skipped: "an earlier rule prevents changes to the node"}

func newEvaluation(p *Program, in *Input) *evaluation {
	e := &evaluation{program: p, in: in, src: facts.NewOverlay(in.Facts), nodeBudget: NodeBudget, unread: in.Facts.Unread()}
	if !p.allMatched {
		e.matched.only = p.matched
	}
	return e
}

// evaluation is the state of the evaluation of all rules for one node. It implements expr.Env. It is not safe for concurrent use.
type evaluation struct {
	program *Program
	in      *Input
	src     *facts.Overlay
	matched matchedState
	vars    map[int]map[string]expr.Value // by set: variables keep their kinds within their object

	unread []string // sources that the worker of the node has not read
	doubt  doubt

	nodeBudget, ruleBudget int
	looked                 match.Work // the cost of searching features for the current rule
	templates              tmpl.Spent // the cost of the templates of the current rule

	// state of the current rule
	rule     *rule
	result   *result
	item     expr.Value
	elements []match.FeatureElements
	runs     [][]match.FeatureElements // the elements that each matcher matched
	local    map[string]expr.Value     // variables set by the current rule so far
	partial  error                     // errors of single instances
	sight    *sight                    // what outputs read; nil unless a trace asks
	chosen   facts.Source              // features of the publishers that featureSources selects; nil until they are merged
}

// run evaluates one rule. An error in it does not affect other rules.
func (e *evaluation) run(r *rule) *result {
	if why := e.skips(r.set); why != "" {
		return &result{skipped: why}
	}
	e.begin(r)
	src := e.sourceFor(r.set)
	matched, err := e.matches(r, src)
	if why := e.undecided(r, src, matched && err == nil); why != "" {
		e.doubt.add(r)
		return &result{skipped: why, undecided: true}
	}
	if err != nil {
		return e.fail(r, err)
	}
	switch {
	case e.partial != nil:
		// not a shared result: it must report the errors
	case !matched:
		return notMatched
	case r.fixed != nil:
		return r.fixed
	}
	if !matched {
		return &result{partial: e.partial}
	}
	e.result = &result{
		matched: true, partial: e.partial, outputs: make([]output, 0, r.assignments()),
		rejected: slices.Clip(r.rejected), // shared by all nodes
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
		e.result = &result{} // a new result, since the evaluation took steps
	}
	e.result.steps = steps
	return e.result
}

// begin resets the state of the previous rule.
func (e *evaluation) begin(r *rule) {
	e.rule, e.ruleBudget = r, min(RuleBudget, e.nodeBudget)
	e.item, e.elements, e.runs, e.local, e.result = expr.Value{}, nil, nil, nil, nil
	e.partial, e.chosen, e.looked, e.templates = nil, nil, 0, tmpl.Spent{}
}

// notMatched is the shared result of rules that do not match.
var notMatched = &result{}

// fail returns the result of a rule whose evaluation failed. A failed rule has no outputs.
func (e *evaluation) fail(r *rule, err error) *result {
	if errors.Is(err, expr.ErrBudget) {
		err = fmt.Errorf("stopped: it takes more than %d steps (%w)", RuleBudget, expr.ErrBudget)
	}
	if r.set.sensitive {
		err = errors.New(terse(err))
	}
	return &result{err: err}
}

// skips returns the reason why the rules of a set are skipped on this node, or "".
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

// matches evaluates the matchers and conditions of a rule, except for conditions that each item of the rule's loop evaluates.
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

// matchesAny evaluates the alternatives: all of them if a template needs the elements of each, otherwise up to the first match.
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

// note records errors of single instances. These instances do not match; the rule continues, and its status reports the errors.
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

// sourceFor returns the facts that the rules of a set read: all facts, or those of the publishers that featureSources selects.
func (e *evaluation) sourceFor(s *RuleSet) facts.Source {
	if s.sources == nil {
		return e.src
	}
	if e.chosen == nil {
		e.chosen = s.sources.choose(e)
	}
	return e.chosen
}

// show makes the outputs of a rule visible to later rules.
func (e *evaluation) show(r *rule, res *result) {
	if e.program.chained && e.matched.add(r, res) {
		e.showMatched(e.src)
	}
	if !r.set.readsVars {
		return
	}
	for name, value := range res.vars {
		e.keepVar(r, name, value)
	}
}

// showMatched makes the outputs of earlier rules visible to matchers as rule.matched.
func (e *evaluation) showMatched(src *facts.Overlay) {
	if !e.matched.exists {
		return
	}
	src.SetFunc(nfdv1alpha1.RuleMatchedFeature, func() *facts.Feature {
		return &facts.Feature{Attributes: facts.NewAttributes(e.matched.values)}
	})
}

// keepVar makes a variable of this rule, with its kind, visible to later rules of the same object.
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

// terse returns an error without its details: the error of a sensitive rule could contain a value.
func terse(err error) string {
	if errors.Is(err, expr.ErrBudget) {
		return "it was stopped because it takes too many steps"
	}
	return "it could not be evaluated; details are hidden because the rule is sensitive"
}

// EvalEach evaluates all rules on nodes, in order, and calls f with the index and the outcome of each until f returns false.
//
// It evaluates nodes whose inputs are equal once: the features that the rules read and the labels that NodeFeatures request, compared by
// value if the facts come from one facts.Interner. Someone waits for all nodes together, and a fleet has tens of kinds of servers. Nothing
// outlives the call.
func (p *Program) EvalEach(inputs []*Input, f func(i int, o *Outcome) bool) {
	known := map[string]*Outcome{}
	for i, in := range inputs {
		if p.perNode {
			if !f(i, p.Eval(*in)) {
				return
			}
			continue
		}
		key := p.batchKey(in)
		o := known[key]
		if o == nil {
			o = p.Eval(*in)
			known[key] = o
		} else {
			same := newOutcome(p, in)
			same.results, same.steps, same.Failed = o.results, o.steps, o.Failed
			o = same
		}
		if !f(i, o) {
			return
		}
	}
}

// batchKey encodes everything that an outcome depends on, except for the program, if no rule reads the node itself or its publishers.
func (p *Program) batchKey(in *Input) string {
	var key []byte
	for _, name := range append([]string{nfdv1alpha1.UnreadFeature}, p.reads...) {
		for _, id := range in.Facts.Feature(name).ID() {
			key = binary.LittleEndian.AppendUint64(key, id)
		}
	}
	for _, name := range facts.SortedKeys(in.Labels) {
		for _, text := range []string{name, in.Labels[name]} {
			key = binary.AppendUvarint(key, uint64(len(text)))
			key = append(key, text...)
		}
	}
	return string(key)
}
