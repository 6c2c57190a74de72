package lint

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/version"
	"github.com/assay-project/assay/rules/warning"
)

// Together returns the warnings about rules that must all match the same node, and cannot: two of their terms contradict each other.
// path is the path of the list of rules. It compares elements that a node has at most once, so not those of instances, and only of
// features that Assay's sources publish.
func Together(path *field.Path, list []nfdv1alpha1.Rule) []warning.Warning {
	l := &linter{spec: &nfdv1alpha1.NodeFeatureRuleSpec{}}
	before := map[string]*joint{}
	for i := range list {
		for j := range list[i].MatchFeatures {
			t := &list[i].MatchFeatures[j]
			name := strings.ToLower(t.Feature)
			if f := dictionary.Find(name); f == nil || f.Is(dictionary.Instances) || t.MatchExpressions == nil {
				continue
			}
			for _, key := range facts.SortedKeys(*t.MatchExpressions) {
				e := (*t.MatchExpressions)[key]
				if e == nil {
					continue
				}
				element := name + "/" + key
				if before[element] == nil {
					before[element] = &joint{}
				}
				if why := before[element].add(e); why != "" {
					at := place{rule: path.Index(i), alternative: -1, term: j, expression: true, key: key}
					l.warn(at.path(), warning.Suspicious, "no node can match: another rule that must match too %s", why)
				}
			}
		}
	}
	return l.out
}

// joint is what the expressions on one element require together.
type joint struct {
	exists, missing, isTrue, isFalse bool
	in, notIn                        []string
	hasIn                            bool
	low, high                        bound
}

// bound is the end of a range.
type bound struct {
	v         version.V
	set, open bool // open: without the value itself
}

// tighter reports whether the bound excludes more than the other one; sign is 1 for a lower bound, -1 for an upper one.
func (b bound) tighter(other bound, sign int) bool {
	c := sign * b.v.Compare(other.v)
	return b.set && (!other.set || c > 0 || c == 0 && b.open && !other.open)
}

// bounds returns the range of an ordering operator. Both ends are unset for another operator, or if a value is neither a number nor a
// version.
func bounds(e *nfdv1alpha1.MatchExpression) (low, high bound) {
	if !rules.MatchOperatorOf(e.Op).Ordered {
		return low, high
	}
	list := make([]bound, len(e.Value))
	for i, v := range e.Value {
		if n, ok := rules.Quantity(v); ok && e.Type == nfdv1alpha1.TypeInteger {
			v = strconv.FormatInt(n, 10)
		}
		parsed, err := version.Parse(v)
		if err != nil {
			return low, high
		}
		list[i] = bound{v: parsed, set: true, open: strings.Contains(string(e.Op), "t")}
	}
	switch op := string(e.Op); {
	case len(list) == 0:
	case len(list) == 2:
		return list[0], list[1]
	case strings.HasPrefix(op, "G"):
		return list[0], high
	default:
		return low, list[0]
	}
	return low, high
}

// contains reports whether a value can be in the range.
func (j *joint) contains(value string) bool {
	v, err := version.Parse(value)
	if err != nil {
		return true
	}
	b := bound{v: v, set: true}
	return !(j.low.set && j.low.tighter(b, 1)) && !(j.high.set && j.high.tighter(b, -1))
}

// add adds an expression, and describes the earlier one that contradicts it, or returns "".
func (j *joint) add(e *nfdv1alpha1.MatchExpression) string {
	switch e.Op {
	case nfdv1alpha1.MatchDoesNotExist:
		j.missing = true
		if j.exists {
			return "requires the element"
		}
		return ""
	case nfdv1alpha1.MatchNotIn: // says nothing about an element that does not exist
		j.notIn = append(j.notIn, e.Value...)
		return j.values("requires one of these values")
	}
	j.exists = true
	if j.missing {
		return "requires that the element does not exist"
	}
	switch e.Op {
	case nfdv1alpha1.MatchIsTrue:
		j.isTrue = true
	case nfdv1alpha1.MatchIsFalse:
		j.isFalse = true
	case nfdv1alpha1.MatchIn:
		if j.hasIn {
			j.in = slices.DeleteFunc(j.in, func(v string) bool { return !slices.Contains(e.Value, v) })
		} else {
			j.in, j.hasIn = slices.Clone(e.Value), true
		}
	}
	if j.isTrue && j.isFalse {
		return "requires the opposite"
	}
	low, high := bounds(e)
	if low.tighter(j.low, 1) {
		j.low = low
	}
	if high.tighter(j.high, -1) {
		j.high = high
	}
	if c := j.low.v.Compare(j.high.v); j.low.set && j.high.set && (c > 0 || c == 0 && (j.low.open || j.high.open)) {
		return "requires another range"
	}
	return j.values("requires other values")
}

// values returns why if no value is left.
func (j *joint) values(why string) string {
	if j.hasIn && !slices.ContainsFunc(j.in, func(v string) bool { return !slices.Contains(j.notIn, v) && j.contains(v) }) {
		return why
	}
	return ""
}
