package rules

import (
	"fmt"
	"maps"
	"strings"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/action"
)

// maxDerived is the maximum length in bytes of an element that an action extends. It equals the webhook's limit for an element of a
// NodeFeature.
const maxDerived = 4 << 10

// derivation is a change to a feature by a rule of an early phase. It is applied only after the whole rule has succeeded.
type derivation struct {
	feature string
	change  func(*draft) error
}

// derive records a change. Feature names are in lower case, as in the lookup of matchFeatures.
func (f *effects) derive(feature string, change func(*draft) error) error {
	f.e.result.derived = append(f.e.result.derived, derivation{strings.ToLower(feature), change})
	return nil
}

// derive applies the changes of a rule. It copies each feature once for all changes: an action in a loop must not copy thousands of
// elements for each item.
func (e *evaluation) derive(list []derivation) error {
	drafts := map[string]*draft{}
	for _, change := range list {
		d := drafts[change.feature]
		if d == nil {
			d = &draft{old: e.src.Feature(change.feature)}
			drafts[change.feature] = d
		}
		if err := change.change(d); err != nil {
			return fmt.Errorf("%s: %w", change.feature, err)
		}
	}
	for _, name := range facts.SortedKeys(drafts) {
		e.src.Set(name, drafts[name].feature())
	}
	return nil
}

// draft is a feature to which a rule's changes are applied.
type draft struct {
	old *facts.Feature // nil if the feature does not exist or was removed
	// Replacements of the parts of old; nil if unchanged.
	flags      *facts.Flags
	attributes map[string]string
	instances  []map[string]string
}

// feature returns the changed feature, or nil if it does not exist.
func (d *draft) feature() *facts.Feature {
	if d.flags == nil && d.attributes == nil && d.instances == nil {
		return d.old
	}
	next := facts.Feature{}
	if d.old != nil {
		next = *d.old
	}
	if d.flags != nil {
		next.Flags = d.flags
	}
	if d.attributes != nil {
		next.Attributes = facts.NewAttributes(d.attributes)
	}
	if d.instances != nil {
		next.Instances = facts.NewInstances(d.instances)
	}
	return &next
}

// writable returns a copy of the attributes.
func (d *draft) writable() map[string]string {
	if d.attributes == nil {
		d.attributes = map[string]string{}
		if d.old != nil {
			maps.Copy(d.attributes, d.old.Attributes.Map())
		}
	}
	return d.attributes
}

// unset removes an element if it exists.
func (d *draft) unset(element string) {
	flags := d.flags
	if flags == nil && d.old != nil {
		flags = d.old.Flags
	}
	if flags.Has(element) {
		d.flags = facts.NewFlags(without(flags.Names(), element)...)
	}
	if d.attributes != nil || d.old != nil {
		delete(d.writable(), element)
	}
}

// each calls change for the instances that have all attributes of match. Actions cannot create instances, so there may be none.
func (d *draft) each(match map[string]string, change func(map[string]string) error) error {
	if d.instances == nil && d.old != nil {
		d.instances = d.old.Instances.Select(nil)
	}
	for _, instance := range d.instances {
		if !has(instance, match) {
			continue
		}
		if err := change(instance); err != nil {
			return err
		}
	}
	return nil
}

// SetFeature implements action.Effects.
func (f *effects) SetFeature(feature, element, value string) error {
	return f.derive(feature, func(d *draft) error {
		d.writable()[element] = value
		return nil
	})
}

// ExtendFeature implements action.Effects.
func (f *effects) ExtendFeature(feature, element, value string, unique bool) error {
	return f.derive(feature, func(d *draft) error { return extend(d.writable(), element, value, unique) })
}

// extend adds a value to a comma-separated list, up to the maximum length.
func extend(m map[string]string, name, value string, unique bool) error {
	if m[name] = action.Append(m[name], value, unique); len(m[name]) > maxDerived {
		return fmt.Errorf("%s is extended to more than %d bytes", name, maxDerived)
	}
	return nil
}

// UnsetFeature implements action.Effects.
func (f *effects) UnsetFeature(feature, element string) error {
	return f.derive(feature, func(d *draft) error {
		if element == "" {
			*d = draft{}
			return nil
		}
		d.unset(element)
		return nil
	})
}

// SetInstanceAttribute implements action.Effects.
func (f *effects) SetInstanceAttribute(feature string, match map[string]string, name, value string) error {
	return f.changeInstances(feature, match, func(m map[string]string) error {
		m[name] = value
		return nil
	})
}

// ExtendInstanceAttribute implements action.Effects.
func (f *effects) ExtendInstanceAttribute(feature string, match map[string]string, name, value string, unique bool) error {
	return f.changeInstances(feature, match, func(m map[string]string) error { return extend(m, name, value, unique) })
}

// DeleteInstanceAttribute implements action.Effects.
func (f *effects) DeleteInstanceAttribute(feature string, match map[string]string, name string) error {
	return f.changeInstances(feature, match, func(m map[string]string) error {
		delete(m, name)
		return nil
	})
}

// changeInstances applies a change to the instances that match. Each change reads all instances and pays for them. Masked
// attributes cannot select instances, since the change would reveal their values.
func (f *effects) changeInstances(feature string, match map[string]string, change func(map[string]string) error) error {
	for _, name := range facts.SortedKeys(match) {
		if f.e.masks(name) {
			return fmt.Errorf("match: the value of %s is masked, and cannot be compared", name)
		}
	}
	if old := f.e.src.Feature(strings.ToLower(feature)); old != nil {
		if err := f.pay(old.Instances.Len() / instancesPerStep); err != nil {
			return err
		}
	}
	return f.derive(feature, func(d *draft) error { return d.each(match, change) })
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
