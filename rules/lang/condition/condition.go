// Package condition evaluates conditions: operators with named arguments, as in inspection rules.
package condition

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// Loop is a loop of a condition, an action or a rule.
type Loop = args.Loop

// Condition is a compiled condition. It is immutable and safe for concurrent use.
type Condition struct {
	written  string // the operator as the author wrote it
	operator *operator
	invert   bool
	args     args.Values
	prepared any // computed once from constant arguments
	loop     *Loop
	multiple string
}

// The ways in which a loop combines the results of its items.
const (
	anyTurn   = "any"
	allTurns  = "all"
	firstTurn = "first"
	lastTurn  = "last"
)

var multiples = []string{anyTurn, allTurns, firstTurn, lastTurn}

// Compile compiles a condition. It adds errors to the compiler of the rule, and then returns nil.
func Compile(c *args.Compiler, path *field.Path, in nfdv1alpha1.Condition) *Condition {
	errors := len(c.Errors)
	out := &Condition{written: in.Op, multiple: anyTurn}
	name, bang := parseOp(c, path.Child("op"), in.Op)
	out.invert = bang != in.Invert
	if bang && in.Invert {
		c.Warn(path.Child("invert"), "the ! before the operator and invert cancel each other")
	}

	inner := c
	out.loop = c.Loop(path.Child("loop"), in.Loop)
	if in.Loop != nil && !in.Loop.IsZero() {
		inner = c.WithItem()
	}
	out.setMultiple(c, path.Child("multiple"), in)
	if out.operator = operators[name]; out.operator != nil {
		out.args = inner.Compile(path.Child("args"), name, out.operator.params, in.Args)
		if inner != c {
			c.Add(inner)
		}
		if len(c.Errors) == errors {
			out.prepare(c, path.Child("args"))
		}
	}
	if len(c.Errors) > errors {
		return nil
	}
	return out
}

func (c *Condition) setMultiple(ac *args.Compiler, path *field.Path, in nfdv1alpha1.Condition) {
	if in.Multiple == "" {
		return
	}
	c.multiple = in.Multiple
	if !slices.Contains(multiples, in.Multiple) {
		ac.Errors = append(ac.Errors, field.NotSupported(path, in.Multiple, multiples))
	} else if in.Loop == nil {
		ac.Warn(path, "multiple has no effect without a loop")
	}
}

// prepare does the work that depends only on constant arguments.
func (c *Condition) prepare(ac *args.Compiler, path *field.Path) {
	if c.operator.prepare == nil {
		return
	}
	prepared, bad, err := c.operator.prepare(c.args, ac.Size)
	if err != nil {
		ac.Refuse(path.Child(bad), c.argument(bad).Constant().String(), "%v", err)
		return
	}
	c.prepared = prepared
}

// parseOp splits an operator into its name and an optional !. It returns "" for an unknown operator.
func parseOp(c *args.Compiler, path *field.Path, written string) (name string, inverted bool) {
	name, inverted = strings.CutPrefix(strings.TrimSpace(written), "!")
	name = strings.TrimLeft(name, " ")
	if name == "" {
		c.Refuse(path, written, `empty op: quote it, since YAML takes an unquoted !eq for a tag; or write invert: true`)
		return "", inverted
	}
	if kebab, ok := camelCase[name]; ok {
		name = kebab
	}
	if operators[name] == nil {
		message := "unknown operator: one of " + strings.Join(operatorNames, ", ")
		if hint := foreignOps[strings.ToLower(name)]; hint != "" {
			if inverted {
				hint = strings.TrimPrefix("!"+hint, "!!")
			}
			message = "unknown operator: write " + hint
		}
		c.Refuse(path, written, "%s", message)
		return "", inverted
	}
	return name, inverted
}

// foreignOps maps operators of other languages to hints.
var foreignOps = map[string]string{
	"ne": "!eq", "ge": "!lt", "le": "!gt", "in": "one-of", "notin": "!one-of", "inregexp": "contains",
	"exists": "!is-none", "doesnotexist": "is-none", "=": "eq", "==": "eq", "<": "lt", ">": "gt", "<=": "!gt", ">=": "!lt",
	"equals": "eq", "equal": "eq", "regex": "contains", "regexp": "contains", "match": "matches",
}

// String returns the operator as its author wrote it.
func (c *Condition) String() string {
	if c.invert && !strings.HasPrefix(c.written, "!") {
		return "!" + c.written
	}
	return c.written
}

// Texts calls visit with each string that holds expressions.
func (c *Condition) Texts(visit func(*expr.Text)) {
	c.loop.Texts(visit)
	for _, v := range c.args {
		v.Texts(visit)
	}
}

// Eval reports whether the condition holds on a node. If an argument does not exist on the node, the operator is false, unless it
// tests for existence. Eval returns an error if the condition cannot be decided for another reason, such as a comparison of a word
// with a number.
func (c *Condition) Eval(env expr.Env) (bool, error) {
	if c.loop == nil {
		return c.once(env)
	}
	items, err := c.items(env)
	if err != nil || items == nil {
		return false, err
	}
	turn := &args.Turn{Env: env}
	for i := range items.Len() {
		turn.Value = items.At(i)
		ok, err := c.once(turn)
		if err != nil {
			return false, err
		}
		if ok != (c.multiple == allTurns) {
			return ok, nil // "any" stops at the first item that holds, "all" at the first that does not hold
		}
	}
	return c.multiple == allTurns, nil
}

// items returns the items for which the condition is evaluated. It returns nil if the list of the loop does not exist on the node;
// the condition is then false.
func (c *Condition) items(env expr.Env) (expr.List, error) {
	items, err := c.loop.Items(env)
	if args.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if n := items.Len(); n > 0 && c.multiple == firstTurn {
		return expr.Values{items.At(0)}, nil
	} else if n > 0 && c.multiple == lastTurn {
		return expr.Values{items.At(n - 1)}, nil
	}
	return items, nil
}

// once evaluates the condition for one item, or without a loop.
func (c *Condition) once(env expr.Env) (bool, error) {
	if !env.Spend(1) {
		return false, expr.ErrBudget
	}
	ok, err := c.operator.eval(c, env)
	if err != nil {
		return false, err
	}
	return ok != c.invert, nil
}

// argument returns an argument by name.
func (c *Condition) argument(name string) *args.Value {
	return c.args[slices.IndexFunc(c.operator.params, func(p args.Param) bool { return p.Name == name })]
}
