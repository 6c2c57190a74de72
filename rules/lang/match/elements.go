package match

import "slices"

// Elements returns the sorted names of the elements of a feature that the terms read. The second result is false if any element may
// matter: for a term that checks names or matches any element.
func (m *Matcher) Elements(feature string) (names []string, closed bool) {
	for i := range m.terms {
		t := &m.terms[i]
		if t.key.String() != feature {
			continue
		}
		if t.name != nil || t.hasExpressions && len(t.expressions) == 0 {
			return nil, false
		}
		for j := range t.expressions {
			names = append(names, t.expressions[j].key.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}
