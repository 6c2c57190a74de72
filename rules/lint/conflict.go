package lint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// writes is the rule that sets a key, and the value.
type writes struct {
	rule  int
	value string
}

// conflicts warns about two rules of the object that set different values for one key and may match the same node. There are no
// warnings about alternatives, rules that require different values of one element (different devices, different vendors), and about
// defaults, rules without matchers or with a subset of the matchers of the other rule.
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
	if ok && before.value != w.value && !alternatives(&l.spec.Rules[before.rule], &l.spec.Rules[w.rule]) {
		l.warn(path(), warning.Suspicious, "is %q, but %q in rule %q; if both rules match, this one wins",
			w.value, before.value, l.spec.Rules[before.rule].Name)
	}
}

// alternatives reports whether two rules are probably intended for different nodes, or one as an exception to the other.
func alternatives(a, b *nfdv1alpha1.Rule) bool {
	if !hasMatcher(a) || !hasMatcher(b) || len(a.Conditions) > 0 || len(b.Conditions) > 0 {
		return true
	}
	ta, tb := tests(a), tests(b)
	shared := 0
	for key, x := range ta {
		y, ok := tb[key]
		if !ok {
			continue
		}
		if x != y {
			return true // the same element with different values
		}
		shared++
	}
	// One rule has all tests of the other and more: it is the exception.
	return (shared == len(ta) || shared == len(tb)) && len(ta) != len(tb)
}

// tests returns the tests of a rule by feature and element.
func tests(r *nfdv1alpha1.Rule) map[string]string {
	out := map[string]string{}
	add := func(key string, e *nfdv1alpha1.MatchExpression) {
		if e != nil {
			values := slices.Clone(e.Value)
			slices.Sort(values)
			out[key] += string(e.Op) + "\x00" + strings.Join(values, "\x00") + "\x01"
		}
	}
	eachTerm(nil, r, func(_ place, t *nfdv1alpha1.FeatureMatcherTerm) {
		name := strings.ToLower(t.Feature)
		add(name+"\x00", t.MatchName)
		if t.MatchExpressions != nil {
			for _, key := range facts.SortedKeys(*t.MatchExpressions) {
				add(name+"\x00"+key, (*t.MatchExpressions)[key])
			}
		}
	})
	return out
}
