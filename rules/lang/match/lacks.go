package match

import "github.com/assay-project/assay/rules/facts"

// Lacks returns the first requirement of a term that src does not meet, as written in the term: "cpu.cpuid/AMXBF16",
// "kernel.version/major Ge \"6\"". It returns "" if all terms hold. Unlike Why, it does not include values of src. The work is
// limited as in EvalWithin.
func (m *Matcher) Lacks(work *Work, src facts.Source) string {
	for i := range m.terms {
		if t := m.traceTerm(work, src, i); !t.Held {
			return t.lacks()
		}
	}
	return ""
}

// Fails reports whether a term does not hold, apart from those about features that skip selects.
func (m *Matcher) Fails(work *Work, src facts.Source, skip func(feature string) bool) bool {
	for i := range m.terms {
		if !skip(m.terms[i].feature) && !m.traceTerm(work, src, i).Held {
			return true
		}
	}
	return false
}

func (t *TermTrace) lacks() string {
	var first *ExprTrace
	for i := range t.Expressions {
		x := &t.Expressions[i]
		if x.Held {
			continue
		}
		// A missing element explains more than a wrong value.
		if !x.Exists {
			return t.asks(x)
		}
		if first == nil {
			first = x
		}
	}
	switch {
	case first != nil:
		return t.asks(first)
	case !t.Found || t.Name == nil && len(t.Expressions) == 0:
		return t.Feature
	case t.Name != nil && !t.Name.Held:
		return t.Feature + " with a name " + t.Name.describe()
	}
	return t.Feature + " with all required attributes in one instance"
}

// asks describes one expression. If the expression only tests for existence, it returns only the element.
func (t *TermTrace) asks(x *ExprTrace) string {
	what := t.Feature + "/" + x.Key
	if x.Op == "Exists" {
		return what
	}
	without := *x
	without.Key = ""
	what += " " + without.describe()
	if x.Masked && x.Op != "DoesNotExist" {
		what += " (never holds: the value is masked)"
	}
	return what
}

// Unmet returns the number of expressions that do not hold, plus the number of terms that fail for other reasons. It is used to
// find the closest node for a hint.
func (m *Matcher) Unmet(work *Work, src facts.Source) int {
	n := 0
	for i := range m.terms {
		t := m.traceTerm(work, src, i)
		if t.Held {
			continue
		}
		before := n
		for _, x := range t.Expressions {
			if !x.Held {
				n++
			}
		}
		if n == before {
			n++
		}
	}
	return n
}
