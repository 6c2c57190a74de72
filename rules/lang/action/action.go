// Package action compiles and runs the actions of rules: what a rule does beyond its maps of labels, annotations and
// variables.
package action

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// Action is a compiled action. It is immutable and safe for concurrent use.
type Action struct {
	kind   *kind
	target target // set for attribute actions
	args   args.Values
	loop   *args.Loop
}

// Compile compiles an action of a rule in a phase. The compiler of the rule collects the errors; Compile returns nil
// if it adds one.
func Compile(c *args.Compiler, path *field.Path, phase nfdv1alpha1.Phase, in nfdv1alpha1.Action) *Action {
	before := len(c.Errors)
	a := &Action{kind: kinds[strings.TrimSpace(in.Op)]}
	if a.kind == nil {
		c.Refuse(path.Child("op"), in.Op, "unknown action: one of %s", strings.Join(names, ", "))
		return nil
	}
	if len(a.kind.phases) > 0 && !slices.Contains(a.kind.phases, phase) {
		c.Errors = append(c.Errors, field.Forbidden(path.Child("op"), a.kind.name+" runs in phase "+a.phases()))
	}

	a.loop = c.Loop(path.Child("loop"), in.Loop)
	inner := c
	if in.Loop != nil && !in.Loop.IsZero() {
		inner = c.WithItem()
	}
	a.compileArgs(inner, path.Child("args"), in)
	if inner != c {
		c.Add(inner)
	}
	if len(c.Errors) > before {
		return nil
	}
	return a
}

// compileArgs compiles the arguments and checks the constraints between them.
func (a *Action) compileArgs(c *args.Compiler, path *field.Path, in nfdv1alpha1.Action) {
	params := a.kind.params
	if a.kind.attribute {
		var ok bool
		if a.target, ok = parseTarget(c, path.Child("path"), a.kind.name, in.Args); !ok {
			return
		}
		params = a.target.params(params)
	}
	before := len(c.Errors)
	a.args = c.Compile(path, a.kind.name, params, in.Args)
	if a.kind.check != nil && len(c.Errors) == before {
		a.kind.check(a, c, path)
	}
}

func (a *Action) phases() string {
	list := make([]string, len(a.kind.phases))
	for i, p := range a.kind.phases {
		list[i] = string(p)
	}
	return strings.Join(list, " or ")
}

// String returns the name of the action.
func (a *Action) String() string { return a.kind.name }

// Texts calls visit with each string that holds expressions.
func (a *Action) Texts(visit func(*expr.Text)) {
	a.loop.Texts(visit)
	for _, v := range a.args {
		v.Texts(visit)
	}
}

// Derives returns the feature that the action creates or changes, or "".
func (a *Action) Derives() string {
	if !a.kind.derives {
		return ""
	}
	return a.arg("feature").Fixed("")
}

// Output returns the kind of output that the action writes to the node (labels, annotations, extendedResources or taints) and, if
// it is the same on every node, the key. Both are empty for other actions.
func (a *Action) Output() (root, key string) {
	if !a.kind.attribute {
		return "", ""
	}
	return string(a.target), a.target.key(a.arg("path").Fixed(""))
}

// Run runs the action, once or for each item of its loop. If the error has Missing set (see expr.Error), an argument refers to
// something that does not exist on the node; the other items of a loop were processed anyway. After any other error the effects are
// incomplete and must not be used.
func (a *Action) Run(env expr.Env, to Effects) error {
	if a.loop == nil {
		return a.once(env, to)
	}
	items, err := a.loop.Items(env)
	if err != nil {
		return err
	}
	turn := &args.Turn{Env: env}
	var missing error
	for i := range items.Len() {
		turn.Value = items.At(i)
		switch err := a.once(turn, to); {
		case args.IsMissing(err):
			missing = err
		case err != nil:
			return fmt.Errorf("loop item %d: %w", i, err)
		}
	}
	return missing
}

// steps is the cost of an action in steps, in addition to its expressions.
const steps = 2

func (a *Action) once(env expr.Env, to Effects) error {
	if !env.Spend(steps) {
		return expr.ErrBudget
	}
	if a.kind.attribute && a.target == "" {
		var err error
		if a, err = a.at(env); err != nil {
			return err
		}
	}
	return a.kind.run(a, env, to)
}

// index returns the position of an argument of this action.
func (a *Action) index(name string) int {
	return slices.IndexFunc(a.kind.params, func(p args.Param) bool { return p.Name == name })
}

// arg returns an argument by its name, or nil if it was omitted.
func (a *Action) arg(name string) *args.Value { return a.args[a.index(name)] }

// texts evaluates arguments as strings.
func (a *Action) texts(env expr.Env, names ...string) ([]string, error) {
	out := make([]string, len(names))
	for i, name := range names {
		if v := a.arg(name); v != nil {
			var err error
			if out[i], err = v.Format(env); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return out, nil
}

// message evaluates a message. If the message refers to something that does not exist, it returns the source: a node must not pass
// a check because the explanation of the failure is incomplete.
func (a *Action) message(env expr.Env, name string) (string, error) {
	v := a.arg(name)
	text, err := v.Format(env)
	if !args.IsMissing(err) {
		return text, err
	}
	var source string
	v.Texts(func(t *expr.Text) { source = t.Source() })
	return source, nil
}

var errNoName = errors.New("the name is empty")
