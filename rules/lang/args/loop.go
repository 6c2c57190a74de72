package args

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/expr"
)

// Loop is a compiled loop: the items for which a rule, condition or action is repeated. It is immutable and safe for concurrent
// use.
type Loop struct {
	items *Value
}

// Loop compiles a loop: a list, a map, or one {expression}. It returns nil if there is no loop or an error. Loops cannot be nested.
func (c *Compiler) Loop(path *field.Path, raw *nfdv1alpha1.JSON) *Loop {
	if raw == nil || raw.IsZero() {
		return nil
	}
	decoded, err := raw.Decode()
	if err != nil {
		c.Refuse(path, string(raw.Raw), "no JSON: %v", err)
		return nil
	}
	if c.Scope != nil && c.Scope.Item {
		c.Refuse(path, "loop", "the rule has a loop already, and loops do not nest")
		return nil
	}
	switch v := decoded.(type) {
	case []any:
		if len(v) == 0 {
			c.Refuse(path, "[]", "an empty loop has no effect; remove it or add items")
			return nil
		}
	case map[string]any:
		decoded = []any{v}
	case string:
		return c.loopText(path, v)
	default:
		c.Refuse(path, decoded, "a list, or one {expression} that yields a list")
		return nil
	}
	return loopOf(c.Value(path, expr.Arg, decoded))
}

func (c *Compiler) loopText(path *field.Path, text string) *Loop {
	v := c.Text(path, expr.Arg, text)
	if v != nil && (v.text == nil || !v.text.IsWhole()) {
		c.Refuse(path, text, `a string is not a list: write a list, or one {expression} that yields a list, such as "{@network.device}"`)
		return nil
	}
	return loopOf(v)
}

func loopOf(v *Value) *Loop {
	if v == nil {
		return nil
	}
	return &Loop{items: v}
}

// Items returns the items of the loop on a node. A map is one item. If the list does not exist on the node, the error is an
// *expr.Error with Missing set.
func (l *Loop) Items(env expr.Env) (expr.List, error) {
	v, err := l.items.Eval(env)
	if err != nil {
		return nil, err
	}
	switch v.Kind() {
	case expr.ListKind:
	case expr.MapKind:
		return expr.Values{v}, nil
	default:
		return nil, fmt.Errorf("loop: %s is not a list", v.Kind())
	}
	if n := v.List().Len(); n > expr.MaxItems {
		return nil, fmt.Errorf("loop over %d items exceeds the budget of %d", n, expr.MaxItems)
	}
	return v.List(), nil
}

// Each calls visit for each item until visit returns an error. A loop over something that does not exist on the node has no items.
func (l *Loop) Each(env expr.Env, visit func(item expr.Value) error) error {
	items, err := l.Items(env)
	if IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range items.Len() {
		if err := visit(items.At(i)); err != nil {
			return err
		}
	}
	return nil
}

// Texts calls visit with each string that holds expressions.
func (l *Loop) Texts(visit func(*expr.Text)) {
	if l != nil {
		l.items.Texts(visit)
	}
}

// Turn is an Env with the current item of a loop. The loop changes it for each item.
type Turn struct {
	expr.Env
	Value expr.Value
}

// Item returns the current item.
func (t *Turn) Item() expr.Value { return t.Value }
