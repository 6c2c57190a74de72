package match

import "github.com/assay-project/assay/rules/facts"

// Lacks names the first thing that a term asks for and src does not have, in the words of the term: "cpu.cpuid/AMXBF16",
// "kernel.version/major Ge \"6\"". It is empty if all terms hold. Unlike Why, it repeats nothing of what src holds.
// The work is bounded as in EvalWithin.
func (m *Matcher) Lacks(work *Work, src facts.Source) string {
	for i := range m.terms {
		if t := m.traceTerm(work, src, i); !t.Held {
			return t.lacks()
		}
	}
	return ""
}

func (t *TermTrace) lacks() string {
	var first *ExprTrace
	for i := range t.Expressions {
		x := &t.Expressions[i]
		if x.Held {
			continue
		}
		// What is missing says more than what is different.
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
	return t.Feature + " with all that is asked of it in one instance"
}

// asks says what one expression asks for: the element alone, where its being there is all.
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

// Unmet counts the expressions that do not hold, and terms that fail otherwise. It says how near src is, for hints.
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
