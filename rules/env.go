package rules

import (
	"sort"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/expr"
	"github.com/assay-project/assay/rules/facts"
)

// Node implements expr.Env.
func (e *evaluation) Node() expr.Node {
	return expr.Node{Name: e.in.Node.Name, Labels: e.in.Node.Labels, Annotations: e.in.Node.Annotations}
}

// Var implements expr.Env: the rule's own variables, then those of the rules before it in the same object.
func (e *evaluation) Var(name string) (expr.Value, bool) {
	if v, ok := e.local[name]; ok {
		return v, v.Kind() != expr.Missing // unset by the rule itself
	}
	v, ok := e.vars[e.rule.set.index][name]
	return v, ok
}

// Element implements expr.Env.
func (e *evaluation) Element(feature, element string) (expr.Value, bool) {
	if feature == nfdv1alpha1.RuleMatchedFeature {
		v, ok := e.matched.values[element]
		return expr.OfText(v), ok
	}
	f := e.lookup(feature)
	if f == nil {
		return expr.Value{}, false
	}
	if v, ok := f.Attributes.Get(element); ok {
		if mask := &e.program.opt.Mask; mask.applies(e.rule.set.sensitive) && mask.masks(element) {
			return expr.OfMasked(), true
		}
		return expr.OfText(v), true
	}
	if f.Flags.Has(element) {
		return expr.OfBool(true), true
	}
	return expr.Value{}, false
}

// Feature implements expr.Env.
func (e *evaluation) Feature(feature string) (expr.Value, bool) {
	if feature == nfdv1alpha1.RuleMatchedFeature {
		return expr.OfMap(expr.Texts(e.matched.snapshot())), e.matched.exists
	}
	f := e.lookup(feature)
	if f == nil {
		return expr.Value{}, false
	}
	switch {
	case f.Instances != nil:
		return expr.OfList(instances{f.Instances, e.masker()}), true
	case f.Attributes != nil:
		return expr.OfMap(attributes{f.Attributes, e.masker()}), true
	default:
		return expr.OfList(expr.Names(f.Flags.Names())), true
	}
}

// lookup finds a feature as matchFeatures does, and under its exact name as NFD's @ does.
func (e *evaluation) lookup(feature string) *facts.Feature {
	src := e.sourceFor(e.rule.set)
	if f := src.Feature(feature); f != nil || e.program.opt.Strict {
		return f
	}
	return src.Feature(strings.ToLower(feature))
}

// Matched implements expr.Env.
func (e *evaluation) Matched(feature string) (expr.Value, bool) {
	var list expr.Values
	pairs := expr.Dict{}
	mask := e.masker()
	for _, f := range e.elements {
		if !strings.EqualFold(f.Feature, feature) {
			continue
		}
		for _, el := range f.Elements {
			switch {
			case el.Instance != nil:
				list = append(list, expr.OfMap(texts{el.Instance, mask}))
			case el.HasValue:
				pairs[el.Name] = mask.value(el.Name, el.Value)
			default:
				list = append(list, expr.OfText(el.Name))
			}
		}
	}
	if len(pairs) > 0 {
		return expr.OfMap(pairs), true
	}
	return expr.OfList(list), len(list) > 0
}

// Item implements expr.Env.
func (e *evaluation) Item() expr.Value { return e.item }

// Spend implements expr.Env.
func (e *evaluation) Spend(steps int) bool {
	if steps > e.ruleBudget {
		e.ruleBudget = 0
		return false
	}
	e.ruleBudget -= steps
	return true
}

// WithItem evaluates f with another element of a loop.
func (e *evaluation) withItem(item expr.Value, f func() error) error {
	old := e.item
	e.item = item
	err := f()
	e.item = old
	return err
}

// masker hides values; nil hides none.
type masker struct{ *Masking }

func (e *evaluation) masker() masker {
	if mask := &e.program.opt.Mask; mask.applies(e.rule.set.sensitive) {
		return masker{mask}
	}
	return masker{}
}

func (m masker) value(name, value string) expr.Value {
	if m.Masking != nil && m.masks(name) {
		return expr.OfMasked()
	}
	return expr.OfText(value)
}

// attributes is the map of an attribute feature.
type attributes struct {
	*facts.Attributes
	mask masker
}

// Get implements expr.Map.
func (a attributes) Get(name string) (expr.Value, bool) {
	v, ok := a.Attributes.Get(name)
	if !ok {
		return expr.Value{}, false
	}
	return a.mask.value(name, v), true
}

// Keys implements expr.Map.
func (a attributes) Keys() []string { return a.Names() }

// instances is the list of an instance feature.
type instances struct {
	*facts.Instances
	mask masker
}

// At implements expr.List.
func (s instances) At(i int) expr.Value { return expr.OfMap(texts{s.Instance(i), s.mask}) }

// texts is the map of one instance.
type texts struct {
	m    map[string]string
	mask masker
}

// Len implements expr.Map.
func (t texts) Len() int { return len(t.m) }

// Get implements expr.Map.
func (t texts) Get(name string) (expr.Value, bool) {
	v, ok := t.m[name]
	if !ok {
		return expr.Value{}, false
	}
	return t.mask.value(name, v), true
}

// Keys implements expr.Map.
func (t texts) Keys() []string {
	keys := make([]string, 0, len(t.m))
	for k := range t.m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// templateEnv gives templates the few names that they share with expressions.
type templateEnv struct{ e *evaluation }

// Var implements tmpl.Env: a variable of the object, or what rules of others have produced.
func (t templateEnv) Var(name string) (string, bool) {
	if v, ok := t.e.Var(name); ok {
		return v.String(), true
	}
	v, ok := t.e.matched.values[name]
	return v, ok
}

// NodeName implements tmpl.Env.
func (t templateEnv) NodeName() string { return t.e.in.Node.Name }
