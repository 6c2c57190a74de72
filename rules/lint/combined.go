package lint

import (
	"regexp"
	"strconv"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// parts warns about a version whose numbers are compared one by one: the second number is then compared whatever the first one is.
func (l *linter) parts(at place, f *dictionary.Feature, all nfdv1alpha1.MatchExpressionSet) {
	if f == nil || f.Versions == nil {
		return
	}
	v := f.Versions
	major, minor := all[v.Major], all[v.Minor]
	if major == nil || minor == nil || all[v.Whole] != nil || !comparesOne(major) || !comparesOne(minor) {
		return
	}
	bound, ok := wholeVersion(major, minor)
	if !ok {
		return
	}
	to := nfdv1alpha1.MatchExpressionSet{v.Whole: &bound}
	for _, key := range facts.SortedKeys(all) {
		if key != v.Major && key != v.Minor {
			to[key] = all[key]
		}
	}
	next := minor.Value[0]
	fix := at.fix(probablyMeant, warning.Edit{Path: append(at.steps(), "matchExpressions"), Value: to})
	at.expression, at.key = true, v.Minor
	l.advise(at.path(), warning.Suspicious, fix, "%s is compared for every %s, not only for %s, so that %s %s matches no newer %s with a smaller %s: write %s: {%s}",
		v.Minor, v.Major, major.Value[0], minor.Op, next, v.Major, v.Minor, v.Whole, fields(bound))
}

// comparesOne reports whether the expression compares with one integer.
func comparesOne(e *nfdv1alpha1.MatchExpression) bool {
	return e.Type == nfdv1alpha1.TypeInteger && len(e.Value) == 1 && integers(e.Value)
}

// wholeVersion returns the comparison of a version that is meant by comparisons of its first two numbers, if it is clear.
func wholeVersion(major, minor *nfdv1alpha1.MatchExpression) (nfdv1alpha1.MatchExpression, bool) {
	out := nfdv1alpha1.MatchExpression{Type: nfdv1alpha1.TypeVersion}
	a, _ := strconv.Atoi(major.Value[0])
	b, _ := strconv.Atoi(minor.Value[0])
	switch {
	case major.Op == nfdv1alpha1.MatchGe && minor.Op == nfdv1alpha1.MatchGe:
		out.Op = nfdv1alpha1.MatchGe
	case major.Op == nfdv1alpha1.MatchGe && minor.Op == nfdv1alpha1.MatchGt:
		out.Op, b = nfdv1alpha1.MatchGe, b+1
	case major.Op == nfdv1alpha1.MatchLe && minor.Op == nfdv1alpha1.MatchLt:
		out.Op = nfdv1alpha1.MatchLt
	case major.Op == nfdv1alpha1.MatchLe && minor.Op == nfdv1alpha1.MatchLe:
		out.Op, b = nfdv1alpha1.MatchLt, b+1
	default:
		return out, false
	}
	out.Value = nfdv1alpha1.MatchValue{strconv.Itoa(a) + "." + strconv.Itoa(b)}
	return out, true
}

// plainName matches the names of attributes that an expression can write after item.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// none warns about a term that is true of any other device: NotIn is evaluated on each device, and its author probably means that no
// device is one of the values. A template that writes the devices that match means them.
func (l *linter) none(at place, f *dictionary.Feature, r *nfdv1alpha1.Rule, t *nfdv1alpha1.FeatureMatcherTerm) {
	if !f.Is(dictionary.Instances) || f.Is(dictionary.Attributes) || t.MatchName != nil || len(*t.MatchExpressions) != 1 ||
		r.LabelsTemplate+r.VarsTemplate != "" || r.LabelsTemplateFrom != nil || r.VarsTemplateFrom != nil || r.Loop != nil {
		return
	}
	for key, e := range *t.MatchExpressions {
		if e == nil || e.Op != nfdv1alpha1.MatchNotIn {
			return
		}
		if element := f.Element(key); element != nil && (element.Kind == dictionary.Bit || element.Kind == dictionary.Bool) {
			return // one of two values, so that it means the other
		}
		at.expression, at.key = true, key
		if !plainName.MatchString(key) || at.alternative >= 0 {
			l.warn(at.path(), warning.Suspicious, "matches every node with any other %s: NotIn is evaluated on each, and holds if one has another value", f.Name)
			return
		}
		condition := map[string]any{"op": "!one-of", "args": map[string]any{"value": "{item." + key + "}", "values": []string(e.Value)},
			"loop": "{@" + f.Name + "}", "multiple": "all"}
		conditions := []any{}
		for i := range r.Conditions {
			conditions = append(conditions, r.Conditions[i])
		}
		at.expression = false
		fix := at.fix(probablyMeant, warning.Edit{Path: append(at.steps(), "matchExpressions"), Value: struct{}{}},
			warning.Edit{Path: []any{"conditions"}, Value: append(conditions, condition)})
		at.expression = true
		l.advise(at.path(), warning.Suspicious, fix, "matches every node with any other %s: NotIn is evaluated on each, and holds if one has another value; "+
			`to require that there is none, write matchExpressions: {}, and conditions: [{op: "!one-of", args: {value: "{item.%s}", values: %s}, loop: "{@%s}", multiple: all}]`,
			f.Name, key, "["+clip.QuoteAll(e.Value)+"]", f.Name)
	}
}
