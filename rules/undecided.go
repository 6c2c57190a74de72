package rules

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/action"
	"github.com/assay-project/assay/rules/lang/match"
)

// doubt holds what some rules may set, for example those of one evaluation of which it is unknown whether they match.
type doubt struct {
	names    map[string]bool // labels and variables, as in rule.matched
	sets     []*RuleSet      // whose variables they may set
	features []string        // that they derive
	open     bool            // they may set any name
}

func (d *doubt) add(r *rule) {
	if d.names == nil {
		d.names = map[string]bool{}
	}
	for _, list := range [][]assignment{r.vars, r.labels} {
		for i := range list {
			if list[i].key.IsLiteral() {
				d.names[literal(list[i].key)] = true
			} else {
				d.open = true
			}
		}
	}
	d.open = d.open || r.varsTemplate != nil || r.labelsTemplate != nil || len(r.actions) > 0
	d.features = append(d.features, r.derives...)
	if (len(r.vars) > 0 || r.varsTemplate != nil || len(r.actions) > 0) && !slices.Contains(d.sets, r.set) {
		d.sets = append(d.sets, r.set)
	}
}

// affects reports whether a rule reads what is in doubt.
func (d *doubt) affects(r *rule) bool {
	if d.names == nil {
		return false
	}
	if slices.ContainsFunc(r.reads, func(name string) bool { return slices.Contains(d.features, name) }) {
		return true
	}
	switch {
	case r.allMatched || r.readsVars && slices.Contains(d.sets, r.set):
		return true
	case r.readsMatched:
		return d.open || slices.ContainsFunc(r.matchedNames, func(name string) bool { return d.names[name] })
	}
	return false
}

// undecided returns why it is unknown whether a rule matches, given the result for the features that the node has; "": it is known. A term of
// matchFeatures does not hold for a feature that is missing, so that a rule which matches does not depend on such a term. A condition or
// a value can hold because a feature is missing.
func (e *evaluation) undecided(r *rule, src facts.Source, matched bool) string {
	unread := e.unread
	if r.set.sources != nil {
		unread = facts.UnreadIn(src) // of the publishers that the rule reads
	}
	if len(unread) == 0 && e.doubt.names == nil || !matched && e.fails(r, src, unread) {
		return ""
	}
	reads := r.reads
	if matched && !r.wantsElements() { // otherwise elements of another publisher may match, and the worker's be missing
		reads = r.asks
	}
	sources := facts.UnreadOf(unread, reads)
	switch {
	case len(sources) > 0:
		return "unknown: " + facts.WhyUnread(sources)
	case e.doubt.affects(r):
		return "unknown: it reads the output of a rule for which this is unknown, because " + facts.WhyUnread(e.unread)
	}
	return ""
}

// fails reports whether a matcher of a rule does not hold because of a feature that is known.
func (e *evaluation) fails(r *rule, src facts.Source, unread []string) bool {
	unknown := func(feature string) bool {
		return len(facts.UnreadOf(unread, []string{feature})) > 0 || e.doubt.names != nil && strings.EqualFold(feature, nfdv1alpha1.RuleMatchedFeature) ||
			slices.Contains(e.doubt.features, strings.ToLower(feature))
	}
	fails := func(m *match.Matcher) bool {
		var work match.Work
		return m.Fails(&work, src, unknown)
	}
	return r.features != nil && fails(r.features) ||
		len(r.any) > 0 && !slices.ContainsFunc(r.any, func(m *match.Matcher) bool { return !fails(m) })
}

// Unread returns why it is unknown whether a node meets the requirement: the sources that its worker has not read and that find what the
// requirement reads. It is empty if that is known, also of a node that meets the requirement.
func (q *Requirement) Unread(in Input) []string {
	unread := in.Facts.Unread()
	if len(unread) == 0 {
		return nil
	}
	e := q.evaluation(in, nil)
	if ok, err := e.matches(q.rule, e.src); e.undecided(q.rule, e.src, ok && err == nil) == "" {
		return nil
	}
	return facts.UnreadOf(unread, q.rule.reads)
}

// Unread returns the sources that the worker has not read and that find what the value reads.
func (v *Value) Unread(in Input) []string { return facts.UnreadOf(in.Facts.Unread(), v.rule.reads) }

// Undecided reports whether it is unknown which value a key should have: a rule that may give it reads a source which the worker of the node
// has not read. Of rules that may write any key, only those count for whose object of is true.
func (o *Outcome) Undecided(kind keys.Kind, key string, of func(*RuleSet) bool) bool {
	for i, res := range o.results {
		if !res.undecided {
			continue
		}
		if r := o.program.rules[i]; r.names(kind, key) || r.open(kind) && of(r.set) {
			return true
		}
	}
	return false
}

// MayFail reports whether it is unknown if a rule fails the node.
func (o *Outcome) MayFail() bool {
	if o.Failed != nil || o.program.opt.IgnoreFail {
		return false
	}
	for i, res := range o.results {
		if res.undecided && slices.ContainsFunc(o.program.rules[i].actions, func(a *action.Action) bool { return a.String() == "fail" }) {
			return true
		}
	}
	return false
}

// AnyUndecided reports whether it is unknown of any rule whether it matches.
func (o *Outcome) AnyUndecided() bool {
	return slices.ContainsFunc(o.results, func(r *result) bool { return r.undecided })
}
