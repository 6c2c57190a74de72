package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
)

// ReadsMatched reports whether the result depends on outputs of rules.
func (q *Requirement) ReadsMatched() bool { return q.rule.readsMatched }

// Lacks returns the first requirement that the node does not meet, such as cpu.cpuid/AMXBF16, or "" if it meets all. The result
// contains no values of the node: there are few different results in a fleet, and a client cannot read serial numbers from them.
// Why returns more detail.
func (q *Requirement) Lacks(in Input, matched map[string]string) string {
	e := q.evaluation(in, matched)
	ok, err := e.matches(q.rule, e.src)
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
