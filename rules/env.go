package rules

import (
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
)

// Node implements expr.Env.
func (e *evaluation) Node() expr.Node {
	return expr.Node{Name: e.in.Node.Name, Labels: e.in.Node.Labels, Annotations: e.in.Node.Annotations}
}

// Var implements expr.Env. It returns the rule's own variables before those of earlier rules of the object.
func (e *evaluation) Var(name string) (expr.Value, bool) {
	if v, ok := e.local[name]; ok {
		e.seeVar(name)
		return v, v.Kind() != expr.Missing // missing if the rule itself has unset the variable
	}
	v, ok := e.vars[e.rule.set.index][name]
	return v, ok
}

// Element implements expr.Env.
func (e *evaluation) Element(feature, element string) (expr.Value, bool) {
	v, ok := e.element(feature, element)
	e.see(feature, element, v, ok)
	return v, ok
}

func (e *evaluation) element(feature, element string) (expr.Value, bool) {
	if feature == nfdv1alpha1.RuleMatchedFeature {
		if v, ok := e.matched.kinds[element]; ok {
			return v, true
		}
		v, ok := e.matched.values[element]
		return expr.OfText(v), ok
	}
	v, ok := elementOf(e.lookup(feature), element)
	if e.program.opt.Strict && v.Kind() == expr.Bool {
		return expr.Value{}, false // NFD's references do not resolve flags
	}
	if ok && v.Kind() == expr.String && e.masks(element) {
		return expr.OfMasked(), true
	}
	return v, ok
}

// Feature implements expr.Env.
func (e *evaluation) Feature(feature string) (expr.Value, bool) {
	if feature == nfdv1alpha1.RuleMatchedFeature {
		return expr.OfMap(expr.Texts(e.matched.snapshot())), e.matched.exists
	}
	v, ok := featureOf(e.lookup(feature))
	e.see(feature, "", v, ok)
	return e.mask(v), ok
}

// Matched implements expr.Env.
func (e *evaluation) Matched(feature string) (expr.Value, bool) {
	v, ok := matchedOf(e.elements, feature)
	e.see(feature, "", v, ok)
	return e.mask(v), ok
}

// lookup returns a feature by its exact name, as NFD's @ references and matchFeatures do.
func (e *evaluation) lookup(feature string) *facts.Feature {
	src := e.sourceFor(e.rule.set)
	if f := src.Feature(feature); f != nil || e.program.opt.Strict {
		return f
	}
	return src.Feature(strings.ToLower(feature))
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

// masks reports whether an element is masked for the current rule.
func (e *evaluation) masks(element string) bool {
	mask := &e.program.opt.Mask
	return mask.applies(e.rule.set.sensitive) && mask.masks(element)
}

// mask hides the masked values in a map or a list of maps.
func (e *evaluation) mask(v expr.Value) expr.Value {
	if !e.program.opt.Mask.applies(e.rule.set.sensitive) {
		return v
	}
	switch v.Kind() {
	case expr.MapKind:
		return expr.OfMap(maskedMap{v.Map(), &e.program.opt.Mask})
	case expr.ListKind:
		return expr.OfList(maskedList{v.List(), &e.program.opt.Mask})
	}
	return v
}

// maskedMap is a map in which some values are masked.
type maskedMap struct {
	expr.Map
	mask *Masking
}

// Get implements expr.Map.
func (m maskedMap) Get(name string) (expr.Value, bool) {
	v, ok := m.Map.Get(name)
	if ok && m.mask.masks(name) {
		return expr.OfMasked(), true
	}
	return v, ok
}

// maskedList is a list of maps in which some values are masked.
type maskedList struct {
	expr.List
	mask *Masking
}

// At implements expr.List.
func (l maskedList) At(i int) expr.Value {
	v := l.List.At(i)
	if v.Kind() == expr.MapKind {
		return expr.OfMap(maskedMap{v.Map(), l.mask})
	}
	return v
}

// templateEnv provides the names that templates share with expressions.
type templateEnv struct{ e *evaluation }

// Var implements tmpl.Env: a variable of the object, or an output of rules of other objects.
func (t templateEnv) Var(name string) (string, bool) {
	if v, ok := t.e.Var(name); ok {
		return v.String(), true
	}
	v, ok := t.e.matched.values[name]
	return v, ok
}

// NodeName implements tmpl.Env.
func (t templateEnv) NodeName() string { return t.e.in.Node.Name }

// TextEnv returns the Env of a node outside of any rule, with the given variables, to test strings with expressions.
func TextEnv(in Input, vars map[string]string, opt Options) expr.Env {
	if in.Facts == nil {
		in.Facts = facts.FromMap(nil, nil)
	}
	e := newEvaluation(&Program{opt: opt}, &in)
	e.begin(&rule{set: &RuleSet{}, keys: &opt.Keys})
	e.local = map[string]expr.Value{}
	for name, value := range vars {
		e.local[name] = expr.OfText(value)
	}
	return e
}
