// Package match evaluates the terms of a rule on the facts of a node.
package match

import (
	"slices"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// Matcher is a compiled list of terms, all of which must hold. It is immutable and safe for concurrent use.
type Matcher struct {
	strict bool
	terms  []term
	reads  []string

	warnings []warning.Warning
}

// Term is a requirement on one feature.
type Term struct {
	// Feature is the name of the feature; case does not matter. A term never holds on a node without the feature.
	Feature string
	// Expressions are keyed by the name of an element; all must hold.
	Expressions map[string]*Expr
	// HasExpressions distinguishes an empty set of expressions, which always holds, from no set, which checks nothing. It is
	// implied by a nonempty set.
	HasExpressions bool
	// Name is evaluated on the names of the elements; it must hold for at least one. Nil checks nothing.
	Name *Expr
}

// Expr is a requirement on one element: an operator, its arguments, and how the ordering operators compare.
type Expr = nfdv1alpha1.MatchExpression

// Options change how a Matcher evaluates.
type Options struct {
	// Strict follows NFD where Assay is more lenient: an expression that cannot be evaluated for one instance is an error of the
	// whole rule, versions must be semantic versions, and an empty set of expressions passes no elements to templates.
	Strict bool
	// Patterns caches regular expressions across compilations. It may be nil.
	Patterns *Patterns
	// Masked reports whether the values of elements with the given name are secret: only their existence can be matched, and
	// messages do not contain them. Nil masks none. Outputs of rules (rule.matched) are never secret.
	Masked func(element string) bool
}

// Reads returns the features that the terms read, in lower case, sorted, without duplicates. The slice is shared: do
// not modify it.
func (m *Matcher) Reads() []string { return m.reads }

// Warnings returns the warnings in the order of the terms. The slice is shared: do not modify it.
func (m *Matcher) Warnings() []warning.Warning { return m.warnings }

// Len returns the number of terms.
func (m *Matcher) Len() int { return len(m.terms) }

// Eval evaluates the terms in order, up to the first that does not hold. A Matcher without terms always holds. If want is true,
// Eval collects the elements that satisfied the terms.
//
// The error is an *EvalError: an expression cannot be evaluated on the node's facts. The caller must then skip the rule, because
// neither result would be correct.
func (m *Matcher) Eval(src facts.Source, want bool) (Result, error) {
	var work Work
	return m.EvalWithin(&work, src, want)
}

// EvalWithin is like Eval, with a limit on the total work of all evaluations that share the same Work. It does not allocate memory
// unless elements are wanted or an evaluation fails.
func (m *Matcher) EvalWithin(work *Work, src facts.Source, want bool) (Result, error) {
	res := Result{OK: true, Failed: -1}
	if want && len(m.terms) > 0 {
		res.Matched = make([]FeatureElements, 0, len(m.terms))
	}
	for i := range m.terms {
		t := &m.terms[i]
		f := facts.Lookup(src, t.key)
		if f == nil {
			return Result{Failed: i, Errors: res.Errors}, nil
		}
		e := evaluation{term: t, position: i, strict: m.strict, want: want, work: work}
		ok, err := e.eval(f)
		if work.exhausted() {
			return Result{Failed: i}, &EvalError{Term: i, Feature: t.feature, Instance: -1, Err: ErrWork}
		}
		res.Errors = append(res.Errors, e.errors...)
		if err != nil {
			return Result{Failed: i, Errors: res.Errors}, err
		}
		if !ok {
			return Result{Failed: i, Errors: res.Errors}, nil
		}
		if want {
			res.Matched = append(res.Matched, FeatureElements{Feature: t.feature, Elements: e.elements})
		}
	}
	return res, nil
}

// term is a compiled Term.
type term struct {
	feature        string // as written by the author
	key            facts.Key
	hasExpressions bool
	expressions    []expression // sorted by name
	name           *expression
}

// expression is a compiled Expr.
type expression struct {
	key  facts.Key // key of the element; unset for matchName
	spec *Expr
	kind kind
	test test // nil unless kind is onValue
	// masked marks a secret value: an operator that compares it never holds.
	masked bool
}

// kind is the part of an element that an expression reads.
type kind uint8

const (
	anything kind = iota // the empty operator
	present              // Exists
	absent               // DoesNotExist
	onValue              // the value, for all other operators; an element without a value does not match
)

// test tests a value for an operator.
type test interface {
	// check must not allocate memory. It adds its cost to the work, and may return any verdict once the work exceeds the limit.
	check(value string, work *Work) verdict
	// problem returns the reason why check returned bad for a value.
	problem(value string) error
}

// never is the test for operators that compare a masked value. It applies to NotIn as well, which would otherwise reveal whether a
// guess is right.
type never struct{}

func (never) check(string, *Work) verdict { return no }
func (never) problem(string) error        { return nil }

// verdict is the outcome of a test.
type verdict uint8

const (
	no verdict = iota
	yes
	bad // the value cannot be tested
)

// verdictOf converts a bool to yes or no.
func verdictOf(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

// onFlag evaluates an expression on a flag, which has no value.
func (e *expression) onFlag(exists bool) bool {
	switch e.kind {
	case anything:
		return true
	case present:
		return exists
	case absent:
		return !exists
	}
	return false
}

// onAttribute evaluates an expression on an attribute, which may be missing.
func (e *expression) onAttribute(value string, exists bool, work *Work) verdict {
	if e.kind == onValue && exists {
		return e.test.check(value, work)
	}
	return verdictOf(e.onFlag(exists))
}

// onName evaluates a matchName.
func (e *expression) onName(name string, work *Work) verdict {
	return e.onAttribute(name, true, work)
}

// reads collects the features of terms.
func reads(terms []term) []string {
	list := make([]string, 0, len(terms))
	for i := range terms {
		list = append(list, terms[i].key.String())
	}
	slices.Sort(list)
	return slices.Compact(list)
}
