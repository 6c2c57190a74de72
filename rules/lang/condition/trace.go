package condition

import (
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// Trace explains the result of a condition on a node.
type Trace struct {
	Op       string `json:"op"`
	Multiple string `json:"multiple,omitempty"` // set with a loop
	Turns    []Turn `json:"turns"`              // one turn if there is no loop
	OK       bool   `json:"ok"`
	Error    string `json:"error,omitempty"`
}

// Turn is one evaluation of the operator.
type Turn struct {
	Item  *expr.Value `json:"item,omitempty"`
	Args  []Arg       `json:"args"`
	OK    bool        `json:"ok"`
	Error string      `json:"error,omitempty"`
}

// Arg is an argument and its value on the node. A missing value is null.
type Arg struct {
	Name  string     `json:"name"`
	Value expr.Value `json:"value"`
	Error string     `json:"error,omitempty"`
}

// Trace evaluates the condition and explains the result. The result equals that of Eval.
func (c *Condition) Trace(env expr.Env) Trace {
	t := Trace{Op: c.String()}
	ok, err := c.Eval(env)
	if t.OK = ok; err != nil {
		t.Error = err.Error()
	}
	if c.loop == nil {
		t.Turns = []Turn{c.turn(env)}
		return t
	}
	t.Multiple = c.multiple
	items, err := c.items(env)
	if err != nil || items == nil {
		return t
	}
	turn := &args.Turn{Env: env}
	for i := range items.Len() {
		item := items.At(i)
		turn.Value = item
		traced := c.turn(turn)
		traced.Item = &item
		t.Turns = append(t.Turns, traced)
	}
	return t
}

func (c *Condition) turn(env expr.Env) Turn {
	var t Turn
	for i, v := range c.args {
		if v == nil {
			continue
		}
		arg := Arg{Name: c.operator.params[i].Name}
		value, err := v.EvalOrMissing(env)
		if arg.Value = value; err != nil {
			arg.Error = err.Error()
		}
		t.Args = append(t.Args, arg)
	}
	ok, err := c.once(env)
	if t.OK = ok; err != nil {
		t.Error = err.Error()
	}
	return t
}
