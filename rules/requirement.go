package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
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
	e := q.evaluation(in, matched)
	return e.matches(q.rule, e.src)
}

// workPerStep is the cost of a step of an expression in units of match.Work.
const workPerStep = 32

// EvalCosting is like Eval and also returns the cost in units of match.Work, a few nanoseconds each.
func (q *Requirement) EvalCosting(in Input, matched map[string]string) (ok bool, cost int, err error) {
	e := q.evaluation(in, matched)
	ok, err = e.matches(q.rule, e.src)
	return ok, int(e.looked-lookedForRequirement) + workPerStep*(RuleBudget-e.ruleBudget), err
}

// Why describes the first part of the requirement that the node does not meet. It returns "" if the node meets all parts.
func (q *Requirement) Why(in Input, matched map[string]string) string {
	e := q.evaluation(in, matched)
	ok, err := e.matches(q.rule, e.src)
	switch {
	case err != nil:
		return err.Error()
	case ok:
		return ""
	}
	e.looked = lookedForRequirement
	return e.whyNot(q.rule)
}

func (q *Requirement) evaluation(in Input, matched map[string]string) *evaluation {
	e := &evaluation{program: q.program, in: &in, src: facts.NewOverlay(in.Facts), nodeBudget: NodeBudget, ruleBudget: RuleBudget, rule: q.rule, looked: lookedForRequirement}
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
