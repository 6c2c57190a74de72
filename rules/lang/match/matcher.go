// Package match decides whether the facts of a node satisfy the terms of a rule.
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

// Term says what one feature must be like.
type Term struct {
	// Feature is the name of the feature; case does not matter. A feature that a node does not have never matches.
	Feature string
	// Expressions are looked up by the name of an element; all must hold.
	Expressions map[string]*Expr
	// HasExpressions tells a set without expressions, which anything satisfies, from no set, which checks nothing. It is
	// implied by a set that has any.
	HasExpressions bool
	// Name is evaluated on the names of the elements, of which one must hold; nil checks nothing.
	Name *Expr
}

// Expr says what one element must be like.
type Expr struct {
	// Op is the operator.
	Op string
	// Value holds its arguments.
	Value []string
	// Type says how the ordering operators compare: as integers (empty) or as versions ("version").
	Type string
}

// Options change how a Matcher evaluates.
type Options struct {
	// Strict follows NFD where Assay is more lenient: an expression that cannot be evaluated for one instance is an error
	// of the whole rule, versions are semantic versions only, and an empty set of expressions gives no elements to templates.
	Strict bool
	// Patterns is shared by compilations that may repeat regular expressions; nil is fine.
	Patterns *Patterns
	// Masked reports whether the values of the elements of that name are secret: they can be matched by presence only, and
	// no message repeats them. Nil: none are. What rules have produced (rule.matched) is never secret.
	Masked func(element string) bool
}

// Reads returns the features that the terms look at, in lower case, sorted, each once. The slice is shared: do not modify it.
func (m *Matcher) Reads() []string { return m.reads }

// Warning is about something that is allowed, since NFD allows it, but cannot be what its author meant.
type Warning struct {
	// Path is the field concerned.
	Path string
	// Message says what it does, or does not do.
	Message string
}

// Warnings returns what looks wrong, in the order of the terms. The slice is shared: do not modify it.
func (m *Matcher) Warnings() []Warning { return m.warnings }

// Len returns how many terms there are.
func (m *Matcher) Len() int { return len(m.terms) }

// Eval decides whether all terms hold, in their order, up to the first that does not. Without terms it holds. The elements
// that satisfied them are collected if want is true.
//
// The error is an *EvalError: an expression that cannot be evaluated on what the node has. The rule must then be left out,
// because neither answer would be right.
func (m *Matcher) Eval(src facts.Source, want bool) (Result, error) {
	var work Work
	return m.EvalWithin(&work, src, want)
}

// EvalWithin is Eval with a bound that holds for all evaluations together that are given the same Work. Unless elements are
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
	feature        string // as typed
	key            facts.Key
	hasExpressions bool
	expressions    []expression // sorted by name
	name           *expression
}

// expression is a compiled Expr.
type expression struct {
	key  facts.Key // of the element; not of a matchName
	spec *Expr
	kind kind
	test test // nil unless kind is onValue
	// masked: the value is secret. An operator that compares it never holds.
	masked bool
}

// kind says what an expression looks at.
type kind uint8

const (
	anything kind = iota // the empty operator
	present              // Exists
	absent               // DoesNotExist
	onValue              // everything else: the value, so that what has none does not match
)

// test is what an operator asks of a value.
type test interface {
	// check must not allocate. It adds what it costs to the work, and may answer anything once that is beyond the bound.
	check(value string, work *Work) verdict
	// problem says why check called a value bad.
	problem(value string) error
}

// never is the test of every operator that would compare a masked value. NotIn does not hold either: it reveals whether a guess is
// right as well as In does.
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

// verdictOf is yes or no.
func verdictOf(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

// onFlag evaluates on an element that is or is not in a set and has no value.
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

// onAttribute evaluates on an element that may be missing.
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
