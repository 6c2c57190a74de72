package args

import (
	"errors"
	"maps"
	"slices"

	"github.com/assay-project/assay/rules/lang/expr"
)

// Value is a compiled argument: a constant, a string with expressions, or a list or map of values. It is immutable and safe for
// concurrent use. A nil *Value is an omitted argument.
type Value struct {
	constant expr.Value
	text     *expr.Text
	list     []*Value
	dict     map[string]*Value
}

// fold replaces a list or map of constants by one constant.
func (v *Value) fold() *Value {
	items := make(expr.Values, 0, len(v.list))
	for _, item := range v.list {
		if !item.IsConstant() {
			return v
		}
		items = append(items, item.constant)
	}
	elements := make(expr.Dict, len(v.dict))
	for name, item := range v.dict {
		if !item.IsConstant() {
			return v
		}
		elements[name] = item.constant
	}
	if v.dict != nil {
		return &Value{constant: expr.OfMap(elements)}
	}
	return &Value{constant: expr.OfList(items)}
}

// IsConstant reports whether the value is the same on every node.
func (v *Value) IsConstant() bool {
	return v != nil && v.text == nil && v.list == nil && v.dict == nil
}

// IsScalar reports whether the value is neither a list nor a map, as far as is known before evaluation.
func (v *Value) IsScalar() bool {
	return v.list == nil && v.dict == nil && v.constant.List() == nil && v.constant.Map() == nil
}

// IsMap reports whether the value is a map, or an expression that may return one.
func (v *Value) IsMap() bool {
	if v.text != nil {
		return v.text.IsWhole()
	}
	return len(v.dict) > 0 || v.constant.Map() != nil && v.constant.Len() > 0
}

// Constant returns a constant value.
func (v *Value) Constant() expr.Value { return v.constant }

// Constants calls visit with each constant element of a list, or with the value itself if it is constant.
func (v *Value) Constants(visit func(expr.Value)) {
	switch list := v.constant.List(); {
	case v.list != nil:
		for _, item := range v.list {
			if item.IsConstant() {
				visit(item.constant)
			}
		}
	case !v.IsConstant():
	case list == nil:
		visit(v.constant)
	default:
		for i := range list.Len() {
			visit(list.At(i))
		}
	}
}

// Flag returns a flag argument, false if it was omitted.
func (v *Value) Flag() bool { return v != nil && v.constant.Truth() }

// Fixed returns a fixed argument, or absent if it was omitted.
func (v *Value) Fixed(absent string) string {
	if v == nil {
		return absent
	}
	text, _ := v.constant.Text()
	return text
}

// Eval returns the value on a node. The error is an *expr.Error.
func (v *Value) Eval(env expr.Env) (expr.Value, error) {
	switch {
	case v.text != nil:
		return v.text.Eval(env)
	case v.list != nil:
		items := make(expr.Values, len(v.list))
		for i, item := range v.list {
			var err error
			if items[i], err = item.Eval(env); err != nil {
				return expr.Value{}, err
			}
		}
		return expr.OfList(items), nil
	case v.dict != nil:
		elements := make(expr.Dict, len(v.dict))
		for _, name := range slices.Sorted(maps.Keys(v.dict)) { // sorted, because the first error determines the result of the rule
			value, err := v.dict[name].Eval(env)
			if err != nil {
				return expr.Value{}, err
			}
			elements[name] = value
		}
		return expr.OfMap(elements), nil
	}
	return v.constant, nil
}

// EvalOrMissing is like Eval, but returns Missing instead of an error for a value, or for an element of a list, that does not exist
// on the node.
func (v *Value) EvalOrMissing(env expr.Env) (expr.Value, error) {
	if v.list == nil {
		value, err := v.Eval(env)
		if IsMissing(err) {
			return expr.Value{}, nil
		}
		return value, err
	}
	items := make(expr.Values, len(v.list))
	for i, item := range v.list {
		var err error
		if items[i], err = item.EvalOrMissing(env); err != nil {
			return expr.Value{}, err
		}
	}
	return expr.OfList(items), nil
}

// Items holds the elements of a list argument on a node. Each element is evaluated when it is read.
type Items struct {
	env      expr.Env
	compiled []*Value
	found    expr.List
}

// Items returns the elements of a list. It returns false if the value does not exist on the node or is not a list. The error is an
// *expr.Error.
func (v *Value) Items(env expr.Env) (Items, bool, error) {
	if v.list != nil {
		return Items{env: env, compiled: v.list}, true, nil
	}
	value, err := v.EvalOrMissing(env)
	return Items{found: value.List()}, value.List() != nil, err
}

// Len returns the number of elements.
func (l *Items) Len() int {
	if l.found != nil {
		return l.found.Len()
	}
	return len(l.compiled)
}

// At returns an element, or Missing if it does not exist on the node.
func (l *Items) At(i int) (expr.Value, error) {
	if l.found != nil {
		return l.found.At(i), nil
	}
	return l.compiled[i].EvalOrMissing(l.env)
}

// Format returns the value as a string. The error is an *expr.Error if an expression caused it.
func (v *Value) Format(env expr.Env) (string, error) {
	if v.text != nil {
		return v.text.Format(env)
	}
	value, err := v.Eval(env)
	if err != nil {
		return "", err
	}
	text, ok := value.Text()
	if !ok {
		return "", errors.New(value.Kind().String() + " is not a string")
	}
	return text, nil
}

// Texts calls visit with each string that holds expressions.
func (v *Value) Texts(visit func(*expr.Text)) {
	if v == nil {
		return
	}
	if v.text != nil {
		visit(v.text)
	}
	for _, item := range v.list {
		item.Texts(visit)
	}
	for _, item := range v.dict {
		item.Texts(visit)
	}
}

// IsMissing reports whether an error means that something does not exist on a node.
func IsMissing(err error) bool {
	var e *expr.Error
	return errors.As(err, &e) && e.Missing
}
