package match

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// Limits of a rule. They are the limits of the CRD, checked again here because the command line and the worker's configuration do
// not pass through the API server.
const (
	// MaxTerms is the maximum number of terms in a list. Rules rarely match more than five features.
	MaxTerms = 64
	// MaxExpressions is the maximum number of expressions in a term.
	MaxExpressions = 64
	// MaxValues is the maximum number of values of an expression. Long lists of device IDs have a few hundred.
	MaxValues = 256
	// MaxTextLength is the maximum length in bytes of the name of a feature or element, of a value and of a pattern.
	MaxTextLength = 1024
)

// Compile compiles a list of terms. It returns all errors at once, ordered by term and by name. If there are errors, the Matcher is
// nil. The terms must not be modified later.
func Compile(path *field.Path, terms []Term, opt Options) (*Matcher, field.ErrorList) {
	c := compiler{strict: opt.Strict, patterns: opt.Patterns, masked: opt.Masked}
	if len(terms) > MaxTerms {
		return nil, field.ErrorList{field.TooMany(path, len(terms), MaxTerms)}
	}
	m := &Matcher{strict: opt.Strict, terms: make([]term, 0, len(terms))}
	for i := range terms {
		m.terms = append(m.terms, c.term(place{list: path, term: i}, &terms[i]))
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	m.reads, m.warnings = reads(m.terms), c.warnings
	return m, nil
}

// place is the place of a term, or of an expression in it. Its path is built only for an error or a warning: most terms have none.
type place struct {
	list  *field.Path // nil: the root
	term  int
	field string // matchName or matchExpressions; "" for the term
	key   string // of matchExpressions
}

// path returns the path of the expression, or of the term.
func (p place) path() *field.Path {
	path := field.NewPath("").Index(p.term)
	if p.list != nil {
		path = p.list.Index(p.term)
	}
	switch p.field {
	case "":
		return path
	case "matchName":
		return path.Child(p.field)
	}
	return path.Child(p.field).Key(short(p.key))
}

// compiler collects errors.
type compiler struct {
	strict   bool
	feature  string // of the term, in lower case
	patterns *Patterns
	masked   func(element string) bool
	errs     field.ErrorList
	warnings []warning.Warning
}

func (c *compiler) add(err *field.Error) { c.errs = append(c.errs, err) }

func (c *compiler) warn(path *field.Path, message string) {
	c.warnings = append(c.warnings, warning.Warning{Path: path.String(), Message: message, Rank: warning.Suspicious})
}

func (c *compiler) term(at place, t *Term) term {
	out := term{
		feature:        t.Feature,
		key:            facts.MakeKey(strings.ToLower(t.Feature)),
		hasExpressions: t.HasExpressions || len(t.Expressions) > 0,
	}
	c.feature = out.key.String()
	switch {
	case t.Feature == "":
		c.add(field.Required(at.path().Child("feature"), "feature is required, for example cpu.cpuid"))
	case !fine(t.Feature):
		c.text(at.path().Child("feature"), t.Feature)
	case strings.TrimSpace(t.Feature) != t.Feature:
		c.add(field.Invalid(at.path().Child("feature"), t.Feature, "remove the spaces around the name; it would never match"))
	}
	if len(t.Expressions) > MaxExpressions {
		c.add(field.TooMany(at.path().Child("matchExpressions"), len(t.Expressions), MaxExpressions))
		return out
	}
	if len(t.Expressions) > 0 {
		out.expressions = make([]expression, 0, len(t.Expressions))
	}
	for _, name := range facts.SortedKeys(t.Expressions) {
		at.field, at.key = "matchExpressions", name
		if !fine(name) {
			c.text(at.path(), name)
		}
		if e, ok := c.expression(at, t.Expressions[name]); ok {
			e.key = facts.MakeKey(name)
			e = c.mask(at, &out, name, e)
			out.expressions = append(out.expressions, e)
		}
	}
	if t.Name != nil {
		at.field = "matchName"
		if e, ok := c.expression(at, t.Name); ok {
			if e.kind == absent {
				c.warn(at.path().Child("op"), "DoesNotExist never holds here: it is evaluated on names that exist")
			}
			out.name = &e
		}
	}
	return out
}

// mask replaces an expression on a masked element by one that tests only whether the element exists. The arguments have already
// been checked, so that masking does not affect whether a rule is valid.
func (c *compiler) mask(at place, t *term, element string, e expression) expression {
	if c.masked == nil || t.key.String() == nfdv1alpha1.RuleMatchedFeature || !c.masked(element) {
		return e
	}
	e.masked = true
	if e.kind == onValue {
		e.test = never{}
		c.warn(at.path().Child("op"), string(e.spec.Op)+" never holds: the value is masked; use Exists or DoesNotExist")
	}
	return e
}

// expression compiles an expression. The second result is false on an error.
func (c *compiler) expression(at place, e *Expr) (expression, bool) {
	if e == nil {
		c.add(field.Required(at.path(), "use {op: Exists} to check only whether it exists"))
		return expression{}, false
	}
	before := len(c.errs)
	family := find(e.Op)
	if family == nil {
		c.add(unknownOperator(at.path().Child("op"), string(e.Op)))
		return expression{}, false
	}
	if n := len(e.Value); n < family.min || n > family.max || n > MaxValues {
		c.count(at.path().Child("value"), e, family)
	}
	if len(e.Value) > MaxValues {
		return expression{}, false
	}
	for i, v := range e.Value {
		if !fine(v) {
			c.text(at.path().Child("value").Index(i), v)
		}
	}
	if len(c.errs) > before {
		return expression{}, false
	}
	out := expression{spec: e, kind: family.kind}
	switch {
	case family.bounds != nil:
		out.test = compileOrder(c, at, e, family.bounds)
	case family.compile != nil:
		out.test = family.compile(c, at, e)
	}
	if len(c.errs) > before {
		return expression{}, false
	}
	if e.Type != "" && family.bounds == nil {
		c.warn(at.path().Child("type"), string(e.Op)+" compares text and ignores the type")
	}
	return out, true
}

// count checks the number of arguments of an operator.
func (c *compiler) count(path *field.Path, e *Expr, o *operator) {
	n := len(e.Value)
	switch {
	case n > MaxValues:
		c.add(field.TooMany(path, n, MaxValues))
	case n == 0 && o.min > 0:
		c.add(field.Required(path, fmt.Sprintf("%s needs %s; did you write values:? The field is called value", e.Op, o.count())))
	case n < o.min || n > o.max:
		name := string(e.Op)
		if name == "" {
			name = "an expression without an operator"
		}
		c.add(field.Invalid(path, shorten(e.Value), fmt.Sprintf("%s takes %s, not %d", name, o.count(), n)))
	}
}

// fine reports whether a string is valid. Nearly all strings are, and their paths are not needed.
func fine(s string) bool { return len(s) <= MaxTextLength && utf8.ValidString(s) }

// text reports the error of an invalid string.
func (c *compiler) text(path *field.Path, s string) {
	if len(s) > MaxTextLength {
		c.add(field.TooLong(path, "", MaxTextLength))
		return
	}
	c.add(field.Invalid(path, strings.ToValidUTF8(s, "\uFFFD"), "is not UTF-8"))
}

// short shortens a name for a path.
func short(s string) string { return strings.ToValidUTF8(clip.Text(s, maxQuoted), "\uFFFD") }

// shorten shortens a list of values for a message.
func shorten(values []string) []string {
	const most = 8
	out := make([]string, 0, min(len(values), most+1))
	for _, v := range values[:min(len(values), most)] {
		out = append(out, short(v))
	}
	if len(values) > most {
		out = append(out, "…")
	}
	return out
}
