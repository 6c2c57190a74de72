package rules

import (
	"strings"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
)

// elementOf returns one element of a feature as a value: the string of an attribute, or true for a flag.
func elementOf(f *facts.Feature, element string) (expr.Value, bool) {
	if f == nil {
		return expr.Value{}, false
	}
	if v, ok := f.Attributes.Get(element); ok {
		return expr.OfText(v), true
	}
	return expr.OfBool(true), f.Flags.Has(element)
}

// featureOf returns a whole feature as a value: a list of maps for instances, a map for attributes, a list of names
// for flags.
func featureOf(f *facts.Feature) (expr.Value, bool) {
	switch {
	case f == nil:
		return expr.Value{}, false
	case f.Instances != nil:
		return expr.OfList(instanceList{f.Instances}), true
	case f.Attributes != nil:
		return expr.OfMap(attributeMap{f.Attributes}), true
	default:
		return expr.OfList(expr.Names(f.Flags.Names())), true
	}
}

// matchedOf returns the elements of a feature that matchers matched, in the same form as featureOf.
func matchedOf(matched []match.FeatureElements, feature string) (expr.Value, bool) {
	var list expr.Values
	attributes := expr.Texts{}
	for _, f := range matched {
		if !strings.EqualFold(f.Feature, feature) {
			continue
		}
		for _, el := range f.Elements {
			switch {
			case el.Instance.Exists():
				list = append(list, expr.OfMap(rowMap{el.Instance}))
			case el.HasValue:
				attributes[el.Name] = el.Value
			default:
				list = append(list, expr.OfText(el.Name))
			}
		}
	}
	if len(attributes) > 0 {
		return expr.OfMap(attributes), true
	}
	return expr.OfList(list), len(list) > 0
}

type attributeMap struct{ *facts.Attributes }

// Get implements expr.Map.
func (m attributeMap) Get(name string) (expr.Value, bool) {
	v, ok := m.Attributes.Get(name)
	return expr.OfText(v), ok
}

// Keys implements expr.Map.
func (m attributeMap) Keys() []string { return m.Names() }

type instanceList struct{ *facts.Instances }

// At implements expr.List.
func (l instanceList) At(i int) expr.Value { return expr.OfMap(rowMap{l.Row(i)}) }

// rowMap reads one instance in place.
type rowMap struct{ facts.Row }

// Len implements expr.Map.
func (m rowMap) Len() int { return len(m.Names()) }

// Get implements expr.Map.
func (m rowMap) Get(name string) (expr.Value, bool) {
	v, ok := m.Row.Get(name)
	return expr.OfText(v), ok
}

// Keys implements expr.Map.
func (m rowMap) Keys() []string { return m.Names() }
