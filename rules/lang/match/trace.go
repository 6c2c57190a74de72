package match

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-project/assay/rules/facts"
)

// TermTrace explains the result of one term.
type TermTrace struct {
	// Feature is the name as written in the rule.
	Feature string `json:"feature"`
	// Found is set if the node has the feature.
	Found bool `json:"found"`
	// Held is set if the term holds. It is evaluated even if an earlier term does not hold.
	Held bool `json:"held"`
	// Reason explains why the term does not hold.
	Reason string `json:"reason,omitempty"`
	// Expressions are sorted by key.
	Expressions []ExprTrace `json:"matchExpressions,omitempty"`
	// Name is the trace of matchName.
	Name *ExprTrace `json:"matchName,omitempty"`
	// Error is the error of the evaluation.
	Error string `json:"error,omitempty"`
}

// ExprTrace explains the result of one expression.
type ExprTrace struct {
	// Key is the name of the element. It is empty for matchName.
	Key string `json:"key,omitempty"`
	// Op, Value and Type are the expression.
	Op    string   `json:"op"`
	Value []string `json:"value,omitempty"`
	Type  string   `json:"type,omitempty"`
	// Found holds up to maxFound values on the node: the value of an attribute, the distinct values of instances, or the names that
	// match matchName. It is empty for a flag.
	Found []string `json:"found,omitempty"`
	// Masked is set if the value is secret: Found is empty, and operators that compare values never hold.
	Masked bool `json:"masked,omitempty"`
	// Exists is set if an element with this name exists, in any instance.
	Exists bool `json:"exists"`
	// Held is set if the expression holds. For instances, it is set if the expression holds for any of them.
	Held bool `json:"held"`
	// Instances is the number of instances. Holding is the number of instances for which this expression holds.
	Instances int `json:"instances,omitempty"`
	Holding   int `json:"holding,omitempty"`
	// Error is the error of the evaluation.
	Error string `json:"error,omitempty"`
	// Reason explains why the expression does not hold.
	Reason string `json:"reason,omitempty"`
}

// maxFound is the maximum number of values in a trace. Traces are for display, and a kernel has thousands of options.
const maxFound = 8

// Trace returns the facts found and the result for each term. The results equal those of Eval, which is faster.
func (m *Matcher) Trace(src facts.Source) []TermTrace {
	out := make([]TermTrace, len(m.terms))
	for i := range m.terms {
		out[i] = m.traceTerm(new(Work), src, i)
	}
	return out
}

// Why explains why the first failing term does not hold: "cpu.cpuid/AMXBF16 is missing". It returns "" if all terms hold.
func (m *Matcher) Why(src facts.Source) string { return m.WhyWithin(new(Work), src) }

// WhyWithin is like Why, with a limit on the work.
func (m *Matcher) WhyWithin(work *Work, src facts.Source) string {
	for i := range m.terms {
		if t := m.traceTerm(work, src, i); !t.Held {
			return t.Reason
		}
	}
	return ""
}

func (m *Matcher) traceTerm(work *Work, src facts.Source, i int) TermTrace {
	t := &m.terms[i]
	trace := TermTrace{Feature: t.feature}
	f := facts.Lookup(src, t.key)
	trace.Found = f != nil
	if f != nil {
		e := evaluation{term: t, position: i, strict: m.strict, work: work}
		ok, err := e.eval(f)
		if work.exhausted() {
			ok, err = false, ErrWork
		}
		trace.Held = ok
		if err != nil {
			trace.Error = err.Error()
		}
	} else {
		f = &facts.Feature{}
	}
	for j := range t.expressions {
		trace.Expressions = append(trace.Expressions, traceExpression(work, t, &t.expressions[j], f))
	}
	if t.name != nil {
		x := traceName(work, t, f)
		trace.Name = &x
	}
	if !trace.Held {
		trace.Reason = reason(work, t, &trace, f)
	}
	return trace
}

// reason returns the most helpful explanation: an error, the missing feature, or the first expression that does not hold.
func reason(work *Work, t *term, trace *TermTrace, f *facts.Feature) string {
	switch {
	case trace.Error != "":
		return trace.Error
	case !trace.Found:
		return "the node has no feature " + t.key.String()
	}
	for _, x := range trace.Expressions {
		if !x.Held {
			return x.Reason
		}
	}
	if len(trace.Expressions) > 1 && f.Instances.Len() > 0 && !expressionsHold(work, t, f) {
		return fmt.Sprintf("none of the %d instances of %s satisfies all expressions at once: %s",
			f.Instances.Len(), t.feature, spread(trace.Expressions))
	}
	if trace.Name != nil && !trace.Name.Held {
		return trace.Name.Reason
	}
	return t.feature + " is empty"
}

// expressionsHold evaluates the expressions without matchName.
func expressionsHold(work *Work, t *term, f *facts.Feature) bool {
	alone := *t
	alone.name = nil
	e := evaluation{term: &alone, work: work}
	ok, _ := e.eval(f)
	return ok
}

// spread returns the number of instances for which each expression holds.
func spread(list []ExprTrace) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, fmt.Sprintf("%s holds for %d", x.describe(), x.Holding))
	}
	return strings.Join(parts, ", ")
}

// describe returns an expression in readable form.
func (x *ExprTrace) describe() string {
	s := x.Op
	if x.Key != "" {
		s = x.Key + " " + s
	}
	if len(x.Value) > 0 {
		s += " " + quoteList(x.Value)
	}
	return s
}

// newTrace returns the trace of an expression before its evaluation.
func newTrace(x *expression) ExprTrace {
	return ExprTrace{Key: x.key.String(), Op: string(x.spec.Op), Value: x.spec.Value, Type: string(x.spec.Type), Masked: x.masked}
}

func traceExpression(work *Work, t *term, x *expression, f *facts.Feature) ExprTrace {
	trace := newTrace(x)
	held := false
	if f.Flags != nil || f.Attributes != nil {
		e := evaluation{term: t, work: work}
		flag, attribute, _, err := e.element(x, f)
		held = err == nil && satisfied(x, f, flag, attribute)
		if err != nil {
			trace.Error = err.Error()
		}
		if value, ok := f.Attributes.GetKey(x.key); ok {
			trace.Exists = true
			if !x.masked {
				trace.Found = append(trace.Found, value)
			}
		}
		trace.Exists = trace.Exists || f.Flags.HasKey(x.key)
	}
	if f.Instances != nil {
		traceInstances(work, t, x, f.Instances, &trace)
	}
	trace.Held = held || trace.Holding > 0
	if !trace.Held {
		trace.Reason = failure(t, x, &trace)
	}
	return trace
}

// traceInstances evaluates one expression on all instances.
func traceInstances(work *Work, t *term, x *expression, s *facts.Instances, trace *ExprTrace) {
	trace.Instances = s.Len()
	trace.Holding = s.Len()
	column := s.Column(x.key)
	if column == nil {
		if !x.onFlag(false) {
			trace.Holding = 0
		}
		return
	}
	trace.Exists = true
	if !x.masked {
		for i := range min(column.Len(), maxFound) {
			trace.Found = append(trace.Found, column.Value(i))
		}
	}
	if x.kind == anything {
		return
	}
	left, hits := newBits(nil, s.Len()), newBits(nil, s.Len())
	left.fill(s.Len())
	e := evaluation{term: t, work: work}
	_ = e.column(x, column, left, hits, nil)
	left.keep(hits, x.kind == absent)
	trace.Holding = left.count()
	if len(e.errors) > 0 && trace.Error == "" {
		trace.Error = e.errors[0].Error()
	}
}

// failure explains why an expression does not hold.
func failure(t *term, x *expression, trace *ExprTrace) string {
	what := t.feature + "/" + trace.Key
	switch {
	case x.masked && x.kind == onValue && trace.Exists:
		return what + " is masked: it can be matched by Exists and DoesNotExist only"
	case trace.Instances > 0 && len(trace.Found) > 0 && x.kind == onValue:
		if trace.Error != "" {
			return trace.Error
		}
		return fmt.Sprintf("none of the %d instances of %s has %s; found %s", trace.Instances, t.feature, trace.describe(), quoteList(trace.Found))
	case trace.Error != "":
		return trace.Error
	case x.kind == absent && trace.Instances > 0:
		return fmt.Sprintf("all %d instances of %s have %s", trace.Instances, t.feature, trace.Key)
	case x.kind == absent:
		return what + " is present"
	case !trace.Exists && trace.Instances > 0:
		return fmt.Sprintf("none of the %d instances of %s has %s", trace.Instances, t.feature, trace.Key)
	case !trace.Exists:
		return what + " is missing"
	case len(trace.Found) == 0:
		return what + " is a flag, which has no value for " + trace.Op
	}
	return fmt.Sprintf("%s is %s, not %s", what, quote(trace.Found[0]), wanted(trace))
}

// wanted describes the values for which an operator holds.
func wanted(trace *ExprTrace) string {
	switch trace.Op {
	case "In":
		if len(trace.Value) == 1 {
			return quote(trace.Value[0])
		}
		return "one of " + quoteList(trace.Value)
	case "NotIn":
		return "anything but " + quoteList(trace.Value)
	case "IsTrue":
		return `"true"`
	case "IsFalse":
		return `"false"`
	}
	return trace.Op + " " + quoteList(trace.Value)
}

func traceName(work *Work, t *term, f *facts.Feature) ExprTrace {
	x := t.name
	trace := newTrace(x)
	all := 0
	note := func(name string) {
		all++
		switch x.onName(name, work) {
		case yes:
			trace.Held = true
			if len(trace.Found) < maxFound {
				trace.Found = append(trace.Found, name)
			}
		case bad:
			if trace.Error == "" {
				trace.Error = fmt.Sprintf("%s (matchName) is %s: %v", t.feature, quote(name), x.test.problem(name))
			}
		}
	}
	_ = eachName(f, func(name string, _ bool, _ string) error { note(name); return nil })
	for _, name := range f.Instances.Names() {
		note(name)
	}
	trace.Exists = all > 0
	trace.Instances = f.Instances.Len()
	switch {
	case trace.Held:
	case all == 0:
		trace.Reason = t.feature + " is empty"
	case trace.Error != "":
		trace.Reason = trace.Error
	default:
		trace.Reason = "none of the " + strconv.Itoa(all) + " names in " + t.feature + " satisfies " + trace.describe()
	}
	return trace
}

// quoteList quotes the first few values for a message.
func quoteList(list []string) string {
	quoted := make([]string, 0, maxFound+1)
	for _, v := range list[:min(len(list), maxFound)] {
		quoted = append(quoted, quote(v))
	}
	if len(list) > maxFound {
		quoted = append(quoted, "…")
	}
	return strings.Join(quoted, ", ")
}
