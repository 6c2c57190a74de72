package rules

import (
	"maps"
	"strings"

	"github.com/assay-project/assay/rules/action"
	"github.com/assay-project/assay/rules/facts"
)

// derivation is a change to the features of a node that a rule of an early phase makes, for the rules after it. It is
// applied once the rule has come through: its effects are all or nothing.
type derivation struct {
	feature string
	// change makes the new feature of the old one, which may be nil.
	change func(old *facts.Feature) *facts.Feature
}

// derive records a change. Names of features are lower-case, since that is how matchFeatures looks them up.
func (f *effects) derive(feature string, change func(*facts.Feature) *facts.Feature) error {
	f.e.result.derived = append(f.e.result.derived, derivation{strings.ToLower(feature), change})
	return nil
}

func (d derivation) apply(e *evaluation) { e.src.Set(d.feature, d.change(e.src.Feature(d.feature))) }

// SetFeature implements action.Effects.
func (f *effects) SetFeature(feature, element, value string) error {
	return f.changeAttributes(feature, func(m map[string]string) { m[element] = value })
}

// ExtendFeature implements action.Effects.
func (f *effects) ExtendFeature(feature, element, value string, unique bool) error {
	return f.changeAttributes(feature, func(m map[string]string) { m[element] = action.Append(m[element], value, unique) })
}

// UnsetFeature implements action.Effects.
func (f *effects) UnsetFeature(feature, element string) error {
	if element == "" {
		return f.derive(feature, func(*facts.Feature) *facts.Feature { return nil })
	}
	return f.derive(feature, func(old *facts.Feature) *facts.Feature {
		if old == nil {
			return nil
		}
		next := *old
		if old.Flags.Has(element) {
			next.Flags = facts.NewFlags(without(old.Flags.Names(), element)...)
		}
		if _, ok := old.Attributes.Get(element); ok {
			m := old.Attributes.Map()
			delete(m, element)
			next.Attributes = facts.NewAttributes(m)
		}
		return &next
	})
}

func (f *effects) changeAttributes(feature string, change func(map[string]string)) error {
	return f.derive(feature, func(old *facts.Feature) *facts.Feature {
		next := facts.Feature{}
		m := map[string]string{}
		if old != nil {
			next = *old
			maps.Copy(m, old.Attributes.Map())
		}
		change(m)
		next.Attributes = facts.NewAttributes(m)
		return &next
	})
}

// SetInstanceAttribute implements action.Effects.
func (f *effects) SetInstanceAttribute(feature string, match map[string]string, name, value string) error {
	return f.changeInstances(feature, match, func(m map[string]string) { m[name] = value })
}

// ExtendInstanceAttribute implements action.Effects.
func (f *effects) ExtendInstanceAttribute(feature string, match map[string]string, name, value string, unique bool) error {
	return f.changeInstances(feature, match, func(m map[string]string) { m[name] = action.Append(m[name], value, unique) })
}

// DeleteInstanceAttribute implements action.Effects.
func (f *effects) DeleteInstanceAttribute(feature string, match map[string]string, name string) error {
	return f.changeInstances(feature, match, func(m map[string]string) { delete(m, name) })
}

// changeInstances changes the instances that have all the attributes of match. Instances cannot be made up, so there may be
// none.
func (f *effects) changeInstances(feature string, match map[string]string, change func(map[string]string)) error {
	return f.derive(feature, func(old *facts.Feature) *facts.Feature {
		if old == nil || old.Instances == nil {
			return old
		}
		list := make([]map[string]string, old.Instances.Len())
		for i := range list {
			list[i] = maps.Clone(old.Instances.Instance(i))
			if has(list[i], match) {
				change(list[i])
			}
		}
		next := *old
		next.Instances = facts.NewInstances(list)
		return &next
	})
}

func has(m, wanted map[string]string) bool {
	for k, v := range wanted {
		if m[k] != v {
			return false
		}
	}
	return true
}

func without(list []string, element string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s != element {
			out = append(out, s)
		}
	}
	return out
}
