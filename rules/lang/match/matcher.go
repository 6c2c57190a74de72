// Package match evaluates the terms of a rule on the facts of a node.
package match

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/facts"
)

// Matcher is a compiled list of terms, all of which must hold. It is immutable and safe for concurrent use.
type Matcher struct {
	path   string
	strict bool
	terms  []term
	reads  []string

	warnings []Warning
}

// Term is the requirement on one feature.
type Term struct {
	// Feature is the name of the feature; case does not matter. A feature that a node lacks never matches.
	Feature string
	// Expressions are keyed by the name of an element; all must hold.
	Expressions map[string]*Expr
	// HasExpressions distinguishes an empty set of expressions, which always holds, from no set, which checks
	// nothing. A set with expressions implies it.
	HasExpressions bool
	// Name is evaluated on the names of the elements; it must hold for one of them. nil checks nothing.
	Name *Expr
}

// Expr is the requirement on one element.
type Expr struct {
	// Op is the operator.
	Op string
	// Value holds its arguments.
	Value []string
	// Type determines how the ordering operators compare: as integers (empty) or as versions ("version").
	Type string
}

// Options change how a Matcher evaluates.
type Options struct {
	// Strict follows NFD where Assay is more lenient: an expression that cannot be evaluated for one instance is an error
	// of the whole rule, versions are semantic versions only, and an empty set of expressions gives no elements to templates.
	Strict bool
	// Patterns is shared by compilations that may repeat regular expressions; it may be nil.
	Patterns *Patterns
	// Masked reports whether the values of the elements of that name are secret: they can be matched by presence
	// only, and no message repeats them. nil masks none. Outputs of rules (rule.matched) are never secret.
	Masked func(element string) bool
}

// Reads returns the features that the terms read, in lower case, sorted, without duplicates. The slice is shared: do
// not modify it.
func (m *Matcher) Reads() []string { return m.reads }

// Warning reports something that NFD allows and that cannot be what its author intended.
type Warning struct {
	// Path is the field concerned.
	Path string
	// Message describes the effect.
	Message string
}

// Warnings returns the warnings in the order of the terms. The slice is shared: do not modify it.
func (m *Matcher) Warnings() []Warning { return m.warnings }

// Len returns the number of terms.
func (m *Matcher) Len() int { return len(m.terms) }

// Eval evaluates the terms in order, up to the first that does not hold. Without terms it holds. The elements that
// satisfied them are collected if want is true.
//
// The error is an *EvalError: an expression that cannot be evaluated on the node's facts. The rule must then be left
// out, because neither result would be correct.
func (m *Matcher) Eval(src facts.Source, want bool) (Result, error) {
	var work Work
	return m.EvalWithin(&work, src, want)
}

// EvalWithin is Eval with a bound on the total work of all evaluations that share the same Work. Unless elements are
// wanted, or an evaluation fails, it allocates nothing.
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
	key  facts.Key // key of the element; unset for a matchName
	spec *Expr
	kind kind
	test test // nil unless kind is onValue
	// masked: the value is secret. An operator that compares it never holds.
	masked bool
}

// kind is the part of an element that an expression reads.
type kind uint8

const (
	anything kind = iota // the empty operator
	present              // Exists
	absent               // DoesNotExist
	onValue              // all others: the value; an element without a value does not match
)

// test is the test of an operator on a value.
type test interface {
	// check must not allocate. It adds its cost to the work, and may return any verdict once the work exceeds the
	// bound.
	check(value string, work *Work) verdict
	// problem returns why check returned bad for a value.
	problem(value string) error
}

// never is the test of all operators that compare a masked value. NotIn does not hold either: it reveals whether a
// guess is right, as In does.
type never struct{}

func (never) check(string, *Work) verdict { return no }
func (never) problem(string) error        { return nil }

// verdict is the outcome of a test.
type verdict uint8

const (
	no verdict = iota
	yes
	bad // the test cannot be done on this value
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

// pathString renders a path; a nil path is the root.
func pathString(p *field.Path) string {
	if p == nil {
		return ""
	}
	return p.String()
}
