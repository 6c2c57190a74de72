package lint

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
)

// maxExample is the maximum number of elements of a node that is an example.
const maxExample = 4

// example describes a node that two rules match, such as ", as on a node with memory.total.bytes 549755813888". It returns "" if it knows
// none.
func example(earlier, later *nfdv1alpha1.Rule) string {
	if len(earlier.MatchAny)+len(later.MatchAny) > 0 {
		return ""
	}
	list := map[testKey][]*nfdv1alpha1.MatchExpression{}
	for _, r := range []*nfdv1alpha1.Rule{earlier, later} {
		for key, t := range tests(r) {
			list[key] = append(list[key], t.list...)
		}
	}
	var parts []string
	keys := slices.SortedFunc(maps.Keys(list), func(a, b testKey) int {
		return strings.Compare(a.feature+"."+a.element, b.feature+"."+b.element)
	})
	for _, key := range keys {
		text := exampleOf(key, list[key])
		if text == "" {
			return ""
		}
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 || len(parts) > maxExample {
		return ""
	}
	return ", as on a node with " + strings.Join(parts, " and ")
}

// exampleOf describes an element that satisfies all expressions on it, or returns "". Each rule may match another instance.
func exampleOf(key testKey, list []*nfdv1alpha1.MatchExpression) string {
	f := dictionary.Find(key.feature)
	element := f.Element(key.element)
	name := key.feature + "." + key.element
	switch {
	case f == nil || key.element == "":
		return ""
	case f.Is(dictionary.Instances):
		return "one " + key.feature + " for each"
	case element == nil:
		return ""
	case !slices.ContainsFunc(list, func(e *nfdv1alpha1.MatchExpression) bool { return e.Op != nfdv1alpha1.MatchExists }):
		return name
	case element.Kind == dictionary.Flag:
		return ""
	}
	values := slices.Clone(element.Typical())
	for _, e := range list {
		for _, v := range e.Value {
			if n, ok := rules.Quantity(v); ok && element.Kind.Numeric() {
				values = append(values, strconv.FormatInt(n, 10), strconv.FormatInt(n+1, 10))
			} else if element.Has(v) {
				values = append(values, v)
			}
		}
	}
	i := slices.IndexFunc(values, func(v string) bool {
		return v != "" && !slices.ContainsFunc(list, func(e *nfdv1alpha1.MatchExpression) bool { return !satisfies(v, e) })
	})
	if i < 0 {
		return ""
	}
	return name + " " + values[i]
}

// satisfies reports whether a value satisfies an expression for certain.
func satisfies(v string, e *nfdv1alpha1.MatchExpression) bool {
	switch e.Op {
	case nfdv1alpha1.MatchExists:
		return true
	case nfdv1alpha1.MatchIn:
		return slices.Contains(e.Value, v)
	case nfdv1alpha1.MatchNotIn:
		return !slices.Contains(e.Value, v)
	case nfdv1alpha1.MatchIsTrue:
		return v == "true"
	case nfdv1alpha1.MatchIsFalse:
		return v == "false"
	case nfdv1alpha1.MatchInRegexp:
		return len(fitting([]string{v}, e.Value)) > 0
	}
	var j joint
	j.low, j.high = bounds(e)
	_, err := strconv.ParseInt(v, 10, 64)
	return (j.low.set || j.high.set) && (err == nil || e.Type == nfdv1alpha1.TypeVersion) && j.contains(v)
}
