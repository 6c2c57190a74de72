package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
)

// Requirement is a compiled set of matchers and conditions without outputs: the requirements of a pod on its node, or the common
// properties of the nodes of a group. It is immutable and safe for concurrent use.
type Requirement struct {
	program *Program // has no rules; evaluations read its options
	rule    *rule
	size    int
}

// CompileRequirement compiles a requirement on nodes. It returns nil if it adds errors to the report.
func CompileRequirement(path *field.Path, terms nfdv1alpha1.FeatureMatcher, alternatives []nfdv1alpha1.MatchAnyElem,
	conditions []nfdv1alpha1.Condition, opt Options) (*Requirement, *Report) {
	report := &Report{}
	c := newCompiler(&opt, report, MaxRequirementSize)
	c.phaseNumber = phaseMain
	in := &nfdv1alpha1.Rule{MatchFeatures: terms, MatchAny: alternatives, Conditions: conditions}
	r := &rule{set: &RuleSet{}, keys: &c.opt.Keys}
	if c.size.Take(ruleSize(in)) {
		c.limits(path, in)
		c.matchers(path, r, in)
		c.scope = c.newScope(r, in)
		c.conditions(path.Child("conditions"), r, conditions)
	}
	if c.size.Over() {
		report.Errors, report.Over = field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			"takes more than %d bytes of memory when it is compiled, with what is required and preferred before it; use fewer values and simpler patterns",
			MaxRequirementSize))}, true
	}
	if !report.OK() {
		return nil, report
	}
	c.finish(r)
	return &Requirement{program: &Program{opt: opt}, rule: r, size: c.size.Used()}, report
}

// Size returns the estimated size of the requirement in bytes, which is the same on every machine; see package size.
func (q *Requirement) Size() int { return q.size }

// Reads returns the names of the features that the requirement reads, sorted.
func (q *Requirement) Reads() []string { return q.rule.reads }

// RequirementWork is the maximum work of a requirement on one node, a fraction of match.MaxWork: a user who may create pods can
// have a requirement evaluated on all kinds of nodes while other pods wait.
const RequirementWork = 1 << 22

// lookedForRequirement is the initial work of a requirement, which leaves RequirementWork of match.MaxWork.
const lookedForRequirement match.Work = match.MaxWork - RequirementWork

// PerNode reports whether the result depends on the node's name or metadata as well as on its features.
func (q *Requirement) PerNode() bool { return q.rule.readsNode }

// Eval reports whether a node meets the requirement. Matched holds the outputs of rules for the node, which the requirement reads
// as rule.matched. It may be nil.
func (q *Requirement) Eval(in Input, matched map[string]string) (bool, error) {
	return q.meets(q.evaluation(in, matched))
}

// meets reports whether a node meets the requirement. It does not if that is unknown: see Unread.
func (q *Requirement) meets(e *evaluation) (bool, error) {
	ok, err := e.matches(q.rule, e.src)
	return ok && (err != nil || e.undecided(q.rule, e.src, true) == ""), err
}

// workPerStep is the cost of a step of an expression in units of match.Work.
const workPerStep = 32

// EvalCosting is like Eval and also returns the cost in units of match.Work, a few nanoseconds each.
func (q *Requirement) EvalCosting(in Input, matched map[string]string) (ok bool, cost int, err error) {
	e := q.evaluation(in, matched)
	ok, err = q.meets(e)
	return ok, int(e.looked-lookedForRequirement) + workPerStep*(RuleBudget-e.ruleBudget), err
}

// Why describes the first part of the requirement that the node does not meet. It returns "" if the node meets all parts.
func (q *Requirement) Why(in Input, matched map[string]string) string {
	e := q.evaluation(in, matched)
	ok, err := e.matches(q.rule, e.src)
	if why := e.undecided(q.rule, e.src, ok && err == nil); why != "" {
		return why
	}
	if ok && err == nil {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	e.looked = lookedForRequirement
	return e.whyNot(q.rule)
}

func (q *Requirement) evaluation(in Input, matched map[string]string) *evaluation {
	e := &evaluation{program: q.program, in: &in, src: facts.NewOverlay(in.Facts), nodeBudget: NodeBudget, ruleBudget: RuleBudget, rule: q.rule, looked: lookedForRequirement, unread: in.Facts.Unread()}
	if matched != nil {
		e.matched.values, e.matched.exists = matched, true
		e.showMatched(e.src)
	}
	return e
}

// whyNot describes the first part of a rule that does not match. The order of the parts is fixed.
func (e *evaluation) whyNot(r *rule) string {
	src := e.sourceFor(r.set)
	if r.features != nil {
		if why := r.features.WhyWithin(&e.looked, src); why != "" {
			return why
		}
	}
	if why := r.firstOfAny(func(m *match.Matcher) string { return m.WhyWithin(&e.looked, src) }); why != "" {
		return fmt.Sprintf("none of %d alternatives: %s", len(r.any), why)
	}
	for i, c := range r.conditions {
		if ok, err := c.Eval(e); err != nil {
			return fmt.Sprintf("conditions[%d]: %v", i, err)
		} else if !ok {
			return fmt.Sprintf("conditions[%d]: %s", i, c.Why(e))
		}
	}
	return ""
}

// ReadsMatched reports whether the result depends on outputs of rules.
func (q *Requirement) ReadsMatched() bool { return q.rule.readsMatched }

// Lacks returns the first requirement that the node does not meet, such as cpu.cpuid/AMXBF16, or "" if it meets all. The result
// contains no values of the node: there are few different results in a fleet, and a client cannot read serial numbers from them.
// Why returns more detail.
func (q *Requirement) Lacks(in Input, matched map[string]string) string {
	e := q.evaluation(in, matched)
	ok, err := e.matches(q.rule, e.src)
	if why := e.undecided(q.rule, e.src, ok && err == nil); why != "" {
		return why
	}
	switch {
	case ok:
		return ""
	case errors.Is(err, expr.ErrBudget):
		return "a condition that takes too many steps"
	case errors.Is(err, match.ErrWork):
		return "patterns that are too expensive to evaluate"
	}
	e.looked = lookedForRequirement
	r := q.rule
	if r.features != nil {
		if lacks := r.features.Lacks(&e.looked, e.src); lacks != "" {
			return lacks
		}
	}
	lacks := r.firstOfAny(func(m *match.Matcher) string { return m.Lacks(&e.looked, e.src) })
	switch {
	case lacks == "":
	case len(r.any) == 1:
		return lacks
	default:
		return fmt.Sprintf("any of %d alternatives, such as %s", len(r.any), lacks)
	}
	for i, c := range r.conditions {
		if ok, err := c.Eval(e); err != nil || !ok {
			return fmt.Sprintf("conditions[%d]: %s", i, c)
		}
	}
	return "something that cannot be evaluated"
}

// firstOfAny returns the first description, in alphabetical order, of why an alternative of the rule does not hold, or "" if one holds
// or there are none.
func (r *rule) firstOfAny(why func(*match.Matcher) string) string {
	if len(r.any) == 0 {
		return ""
	}
	all := make([]string, len(r.any))
	for i, m := range r.any {
		if all[i] = why(m); all[i] == "" {
			return ""
		}
	}
	return slices.Min(all)
}

// Produced returns the labels and vars of rules by their names in rule.matched, and labels also by their full names. Requirements
// read them as rule.matched, whether or not they are written yet.
func (o *Outcome) Produced() map[string]string {
	labels := o.Labels()
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	maps.Copy(out, o.told().values)
	return out
}

// told returns rule.matched once all rules have run, for pods and NodeFeatures. Every pod may read it, so variables of sensitive rules that
// may read masked values are omitted.
func (o *Outcome) told() *matchedState {
	state := &matchedState{}
	for i, r := range o.results {
		state.add(o.program.rules[i], o.program.toldOthers(o.program.rules[i], r))
	}
	return state
}

// toldOthers returns a result without the variables that told omits.
func (p *Program) toldOthers(r *rule, res *result) *result {
	if p.opt.Mask.Mode != MaskSensitive || !r.set.sensitive {
		return res
	}
	told := *res
	told.outputs = slices.DeleteFunc(slices.Clone(res.outputs), func(out output) bool { return out.kind == keys.Var })
	return &told
}

// Unmet returns the number of parts of the requirement that the node does not meet. It is used to find the closest node for a hint.
func (q *Requirement) Unmet(in Input, matched map[string]string) int {
	e := q.evaluation(in, matched)
	r := q.rule
	n := 0
	if r.features != nil {
		n += r.features.Unmet(&e.looked, e.src)
	}
	if len(r.any) > 0 {
		least := r.any[0].Unmet(&e.looked, e.src)
		for _, m := range r.any[1:] {
			least = min(least, m.Unmet(&e.looked, e.src))
		}
		n += least
	}
	for _, c := range r.conditions {
		if ok, err := c.Eval(e); err != nil || !ok {
			n++
		}
	}
	return n
}
