package expr

import (
	"strings"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/match"
)

// FeatureOf returns a whole feature of a node as a value: instances are a list of maps, attributes a map, flags a list of
// their names. Of a feature that is more than one of them, the first that is not empty counts. Nothing is copied.
func FeatureOf(f *facts.Feature) (Value, bool) {
	switch {
	case f == nil:
		return Value{}, false
	case f.Instances.Len() > 0:
		return OfList(instanceList{f.Instances}), true
	case f.Attributes.Len() > 0:
		return OfMap(attributeMap{f.Attributes}), true
	case f.Flags.Len() > 0 || f.Instances == nil && f.Attributes == nil:
		return OfList(Names(f.Flags.Names())), true
	case f.Instances != nil:
		return OfList(nil), true
	}
	return OfMap(nil), true
}

// ElementOf returns the value of an attribute, or true for a flag.
func ElementOf(f *facts.Feature, element string) (Value, bool) {
	if f == nil {
		return Value{}, false
	}
	if value, ok := f.Attributes.Get(element); ok {
		return OfText(value), true
	}
	if f.Flags.Has(element) {
		return OfBool(true), true
	}
	return Value{}, false
}

// MatchedOf returns what matchers matched of a feature ("domain.feature", in lower case) in the shapes of FeatureOf, each
// element once.
func MatchedOf(matched []match.FeatureElements, feature string) (Value, bool) {
	var instances Values
	var flags Names
	attributes, seen := Dict{}, map[string]bool{}
	found := false
	for i := range matched {
		if !strings.EqualFold(matched[i].Feature, feature) {
			continue
		}
		found = true
		for _, element := range matched[i].Elements {
			switch {
			case element.Instance != nil:
				instances = append(instances, OfMap(Texts(element.Instance)))
			case element.HasValue:
				attributes[element.Name] = OfText(element.Value)
			case !seen[element.Name]:
				seen[element.Name] = true
				flags = append(flags, element.Name)
			}
		}
	}
	switch {
	case len(instances) > 0:
		return OfList(instances), true
	case len(attributes) > 0:
		return OfMap(attributes), true
	}
	return OfList(flags), found
}

// attributeMap is a Map of the attributes of a node.
type attributeMap struct {
	attributes *facts.Attributes
}

func (m attributeMap) Len() int       { return m.attributes.Len() }
func (m attributeMap) Keys() []string { return m.attributes.Names() }

func (m attributeMap) Get(key string) (Value, bool) {
	value, ok := m.attributes.Get(key)
	return OfText(value), ok
}

// instanceList is a List of the instances of a node.
type instanceList struct {
	instances *facts.Instances
}

func (l instanceList) Len() int       { return l.instances.Len() }
func (l instanceList) At(i int) Value { return OfMap(instanceMap{l.instances, i}) }

// instanceMap is a Map of the attributes of an instance.
type instanceMap struct {
	instances *facts.Instances
	index     int
}

func (m instanceMap) Len() int       { return len(m.instances.Instance(m.index)) }
func (m instanceMap) Keys() []string { return sortedKeys(m.instances.Instance(m.index)) }

func (m instanceMap) Get(key string) (Value, bool) {
	value, ok := m.instances.Get(m.index, key)
	return OfText(value), ok
}
