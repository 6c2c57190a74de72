package lint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// writes is the rule that sets a key, and the value.
type writes struct {
	rule  int
	value string
}

// conflicts warns about two rules of the object that set different values for one key and may match the same node. There are no
// warnings about alternatives, rules that cannot match the same node or require different devices, and about defaults: rules without
// matchers, or that match wherever a later one matches.
func (l *linter) conflicts() {
	for _, kind := range []struct {
		field string
		of    func(*nfdv1alpha1.Rule) map[string]string
	}{
		{"labels", func(r *nfdv1alpha1.Rule) map[string]string { return r.Labels }},
		{"annotations", func(r *nfdv1alpha1.Rule) map[string]string { return r.Annotations }},
		{"extendedResources", func(r *nfdv1alpha1.Rule) map[string]string { return r.ExtendedResources }},
	} {
		first := make(map[string]writes, len(l.spec.Rules))
		for i := range l.spec.Rules {
			values := kind.of(&l.spec.Rules[i])
			for _, key := range facts.SortedKeys(values) {
				full := key
				if !strings.Contains(key, "/") {
					full = nfdv1alpha1.FeatureLabelNamespace + "/" + key
				}
				l.conflict(first, full, writes{i, values[key]}, func() *field.Path {
					return field.NewPath("spec", "rules").Index(i).Child(kind.field).Key(key)
				})
			}
		}
	}
	first := map[string]writes{}
	for i := range l.spec.Rules {
		for j, c := range l.spec.Rules[i].NodeConditions {
			l.conflict(first, c.Type, writes{i, c.Status}, func() *field.Path {
				return field.NewPath("spec", "rules").Index(i).Child("nodeConditions").Index(j).Child("status")
			})
		}
	}
}

// conflict warns if an earlier rule sets another value for a key; first holds the last write of each key.
func (l *linter) conflict(first map[string]writes, key string, w writes, path func() *field.Path) {
	before, ok := first[key]
	first[key] = w
	if !ok || before.value == w.value {
		return
	}
	earlier, later := &l.spec.Rules[before.rule], &l.spec.Rules[w.rule]
	switch relate(earlier, later) {
	case wider:
		l.warn(path(), warning.Suspicious, "is %q on each node for which rule %q has %q, because this rule matches there too and is later; move it before that rule",
			w.value, earlier.Name, before.value)
	case overlapping:
		l.warn(path(), warning.Suspicious, "is %q, but %q in rule %q; if both rules match, this one wins%s", w.value, before.value, earlier.Name, example(earlier, later))
	case alternatives:
	}
}

// relation is how the nodes that a rule matches relate to those of an earlier rule.
type relation int

const (
	// alternatives match different nodes, or the later rule is an exception to the earlier one.
	alternatives relation = iota
	// overlapping rules may match the same node.
	overlapping
	// wider is a rule that matches all nodes of the earlier one, and others.
	wider
)

// relate compares the nodes that two rules match.
func relate(earlier, later *nfdv1alpha1.Rule) relation {
	if !hasMatcher(earlier) || !hasMatcher(later) || len(earlier.Conditions) > 0 || len(later.Conditions) > 0 {
		return alternatives
	}
	a, b := tests(earlier), tests(later)
	narrower, broader := len(a) <= len(b), len(b) <= len(a) // b than a
	same := 0
	for key, x := range a {
		y, ok := b[key]
		switch {
		case !ok:
			narrower = false
			continue
		case x.text == y.text:
			same++
			continue
		case differ(key, x, y):
			return alternatives
		}
		narrower = narrower && within(y, x)
		broader = broader && within(x, y)
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			broader = false
		}
	}
	equal := same == len(a) && same == len(b)
	switch {
	case equal:
		return overlapping
	case narrower:
		return alternatives
	case broader && len(later.MatchAny)+len(earlier.MatchAny) == 0:
		return wider
	}
	return overlapping
}

// differ reports whether no node can pass both tests of an element, or only one with devices that differ in what identifies them.
func differ(key testKey, a, b test) bool {
	f := dictionary.Find(key.feature)
	element := f.Element(key.element)
	if f.Is(dictionary.Instances) {
		return key.element == "" || element == nil || element.Kind == dictionary.Text || element.Kind.Width() > 0 || element.More
	}
	if len(a.list) != 1 || len(b.list) != 1 || a.any || b.any {
		return true // not proved, but intended
	}
	x, y := a.list[0], b.list[0]
	if f.Is(dictionary.Flags) && !f.Is(dictionary.Attributes) || x.Op == nfdv1alpha1.MatchInRegexp || y.Op == nfdv1alpha1.MatchInRegexp {
		return true
	}
	j := joint{}
	_ = j.add(x)
	return j.add(y) != ""
}

// within reports whether each value that passes the first test passes the second one.
func within(a, b test) bool {
	if len(a.list) != 1 || len(b.list) != 1 {
		return false
	}
	x, y := a.list[0], b.list[0]
	if y.Op == nfdv1alpha1.MatchExists {
		return x.Op != nfdv1alpha1.MatchDoesNotExist
	}
	if x.Op == nfdv1alpha1.MatchIn && y.Op == nfdv1alpha1.MatchIn {
		return !slices.ContainsFunc(x.Value, func(v string) bool { return !slices.Contains(y.Value, v) })
	}
	outer := joint{}
	outer.low, outer.high = bounds(y)
	if !outer.low.set && !outer.high.set {
		return false
	}
	if x.Op == nfdv1alpha1.MatchIn {
		return !slices.ContainsFunc(x.Value, func(v string) bool { return !outer.contains(v) })
	}
	low, high := bounds(x)
	return (low.set || high.set) && (!outer.low.set || low.set && !outer.low.tighter(low, 1)) && (!outer.high.set || high.set && !outer.high.tighter(high, -1))
}

// testKey is the feature and element of a test; the element of matchName is empty.
type testKey struct{ feature, element string }

// test is what a rule requires of an element.
type test struct {
	text string
	list []*nfdv1alpha1.MatchExpression
	any  bool // in an alternative of matchAny
}

// tests returns the tests of a rule by feature and element.
func tests(r *nfdv1alpha1.Rule) map[testKey]test {
	out := map[testKey]test{}
	add := func(at place, key testKey, e *nfdv1alpha1.MatchExpression) {
		if e != nil {
			values := slices.Clone(e.Value)
			slices.Sort(values)
			t := out[key]
			t.text += string(e.Op) + "\x00" + string(e.Type) + strings.Join(values, "\x00") + "\x01"
			t.list, t.any = append(t.list, e), t.any || at.alternative >= 0
			out[key] = t
		}
	}
	eachTerm(nil, r, func(at place, t *nfdv1alpha1.FeatureMatcherTerm) {
		name := strings.ToLower(t.Feature)
		add(at, testKey{feature: name}, t.MatchName)
		if t.MatchExpressions != nil {
			for _, key := range facts.SortedKeys(*t.MatchExpressions) {
				add(at, testKey{name, key}, (*t.MatchExpressions)[key])
			}
		}
	})
	return out
}
