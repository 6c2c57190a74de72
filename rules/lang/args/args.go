// Package args compiles the arguments and loops of conditions and actions.
package args

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/warning"
)

// Param describes an argument of an operator or action.
type Param struct {
	Name string
	// Place determines what braces in its strings mean.
	Place expr.Place
	// Optional arguments may be omitted.
	Optional bool
	// Fixed arguments are the same on every node; they cannot contain expressions.
	Fixed bool
	// Flag arguments are booleans, and fixed.
	Flag bool
	// OneOf lists the values that a fixed argument may have; empty allows any.
	OneOf []string
	// Items arguments are a list of at least Least elements, or an expression that yields a list.
	Items bool
	Least int
	// Rest takes all remaining elements of a positional list.
	Rest bool
}

// Compiler compiles the arguments of one rule and collects errors and warnings.
type Compiler struct {
	Mode  expr.Mode
	Scope *expr.Scope
	// Size is the budget for compiled regular expressions; nil is unlimited.
	Size *size.Budget

	Errors   field.ErrorList
	Warnings []warning.Warning
}

// WithItem returns a compiler for the body of a loop.
func (c *Compiler) WithItem() *Compiler {
	scope := expr.Scope{}
	if c.Scope != nil {
		scope = *c.Scope
	}
	scope.Item = true
	return &Compiler{Mode: c.Mode, Scope: &scope, Size: c.Size}
}

// Add adds the errors and warnings of another compiler.
func (c *Compiler) Add(other *Compiler) {
	c.Errors = append(c.Errors, other.Errors...)
	c.Warnings = append(c.Warnings, other.Warnings...)
}

// Refuse records an error.
func (c *Compiler) Refuse(path *field.Path, value any, format string, args ...any) {
	c.Errors = append(c.Errors, field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

// Warn records a warning.
func (c *Compiler) Warn(path *field.Path, format string, args ...any) {
	c.Warnings = append(c.Warnings, warning.Warning{Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: warning.Suspicious})
}

// Values are compiled arguments, in the order of their Params; nil for those omitted.
type Values []*Value

// Compile compiles the arguments of op: a map by name, or, with a warning, a list in the order of the params. Arguments with errors
// are nil in the result, which is then only useful to find more errors.
func (c *Compiler) Compile(path *field.Path, op string, params []Param, raw nfdv1alpha1.JSON) Values {
	decoded, err := raw.Decode()
	if err != nil {
		c.Refuse(path, string(raw.Raw), "no JSON: %v", err)
		return nil
	}
	named := map[string]any{}
	switch decoded := decoded.(type) {
	case nil:
	case map[string]any:
		named = decoded
	case []any:
		named = c.positional(path, op, params, decoded)
	default:
		c.Refuse(path, decoded, "the arguments of %s are a map: %s", op, usage(params))
		return nil
	}
	c.unknown(path, op, params, named)

	values := make(Values, len(params))
	for i := range params {
		p := &params[i]
		argument, present := named[p.Name]
		switch {
		case present:
			values[i] = c.argument(path.Child(p.Name), p, argument)
		case !p.Optional:
			c.Errors = append(c.Errors, field.Required(path.Child(p.Name), op+" needs it: "+usage(params)))
		}
	}
	return values
}

// positional converts a list of arguments to named arguments.
func (c *Compiler) positional(path *field.Path, op string, params []Param, list []any) map[string]any {
	c.Warnings = append(c.Warnings, warning.Warning{Path: path.String(), Rank: warning.Unlikely,
		Message: fmt.Sprintf("name the arguments of %s: %s", op, usage(params))})
	named := map[string]any{}
	for i := range params {
		switch {
		case params[i].Rest:
			if nested, ok := single(list); ok {
				list = nested
			}
			named[params[i].Name] = list
			return named
		case len(list) == 0:
			return named
		}
		named[params[i].Name], list = list[0], list[1:]
	}
	if len(list) > 0 {
		c.Refuse(path, len(list), "%s takes no more than %d arguments: %s", op, len(params), usage(params))
	}
	return named
}

// single returns the element of a list that contains one element, which is a list.
func single(list []any) ([]any, bool) {
	if len(list) != 1 {
		return nil, false
	}
	nested, ok := list[0].([]any)
	return nested, ok
}

func (c *Compiler) unknown(path *field.Path, op string, params []Param, named map[string]any) {
	var names []string
	for name := range named {
		if !slices.ContainsFunc(params, func(p Param) bool { return p.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c.Refuse(path.Child(name), name, "%s has no such argument: %s", op, usage(params))
	}
}

// usage lists the arguments for messages.
func usage(params []Param) string {
	if len(params) == 0 {
		return "it takes none"
	}
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
		if p.Optional {
			names[i] += " (optional)"
		}
	}
	return strings.Join(names, ", ")
}

func (c *Compiler) argument(path *field.Path, p *Param, argument any) *Value {
	switch {
	case p.Flag:
		truth, ok := argument.(bool)
		if !ok {
			c.Refuse(path, argument, "true or false, without quotes")
			return nil
		}
		return &Value{constant: expr.OfBool(truth)}
	case p.Fixed:
		return c.fixed(path, p, argument)
	case p.Items:
		return c.items(path, p, argument)
	}
	return c.Value(path, p.Place, argument)
}

func (c *Compiler) fixed(path *field.Path, p *Param, argument any) *Value {
	text, ok := argument.(string)
	if !ok {
		c.Refuse(path, argument, "text")
		return nil
	}
	if len(p.OneOf) > 0 && !slices.Contains(p.OneOf, text) {
		c.Errors = append(c.Errors, field.NotSupported(path, text, p.OneOf))
		return nil
	}
	return &Value{constant: expr.OfText(text)}
}

// items compiles a list argument.
func (c *Compiler) items(path *field.Path, p *Param, argument any) *Value {
	switch argument := argument.(type) {
	case []any:
		if len(argument) < p.Least {
			c.Refuse(path, argument, "%s must be a list of at least %s", p.Name, number(p.Least))
			return nil
		}
	case string:
		v := c.Value(path, p.Place, argument)
		if v != nil && (v.text == nil || !v.text.IsWhole()) {
			c.Refuse(path, argument, "%s must be a list of at least %s, or one {expression} that yields it", p.Name, number(p.Least))
			return nil
		}
		return v
	default:
		c.Refuse(path, argument, "%s must be a list of at least %s", p.Name, number(p.Least))
		return nil
	}
	return c.Value(path, p.Place, argument)
}

func number(n int) string {
	return [...]string{"none", "one", "two"}[min(n, 2)]
}

// maxDepth is the maximum depth of nested lists and maps in an argument: no operator uses deeper ones.
const maxDepth = 8

// Value compiles a value and expands expressions in its strings, at any depth. It returns nil on an error.
func (c *Compiler) Value(path *field.Path, place expr.Place, v any) *Value {
	errors := len(c.Errors)
	compiled := c.value(path, place, v, 0)
	if len(c.Errors) > errors {
		return nil
	}
	return compiled
}

func (c *Compiler) value(path *field.Path, place expr.Place, v any, depth int) *Value {
	if depth > maxDepth {
		c.Refuse(path, "…", "nested deeper than %d", maxDepth)
		return nil
	}
	switch v := v.(type) {
	case string:
		return c.Text(path, place, v)
	case []any:
		if len(v) > expr.MaxItems {
			c.Refuse(path, len(v), "a list has at most %d elements", expr.MaxItems)
			return nil
		}
		compiled := &Value{list: make([]*Value, len(v))}
		for i, item := range v {
			compiled.list[i] = c.value(path.Index(i), place, item, depth+1)
		}
		return compiled.fold()
	case map[string]any:
		return c.dict(path, place, v, depth)
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			c.Warn(path, "YAML drops trailing zeros of decimals, so 2.10 becomes 2.1: quote %s, and compare versions with type: version", v)
		}
	}
	constant, err := expr.FromJSON(v)
	if err != nil {
		c.Refuse(path, v, "%v", err)
		return nil
	}
	return &Value{constant: constant}
}

func (c *Compiler) dict(path *field.Path, place expr.Place, v map[string]any, depth int) *Value {
	names := make([]string, 0, len(v))
	for name, item := range v {
		names = append(names, name)
		if item == nil && len(v) == 1 {
			c.Refuse(path, "{"+name+"}", `YAML takes unquoted braces for a map: write "{%s}", in quotes`, name)
			return nil
		}
	}
	if len(names) > expr.MaxItems {
		c.Refuse(path, len(v), "a map has at most %d elements", expr.MaxItems)
		return nil
	}
	slices.Sort(names)
	compiled := &Value{dict: make(map[string]*Value, len(v))}
	for _, name := range names {
		compiled.dict[name] = c.value(path.Key(name), place, v[name], depth+1)
	}
	return compiled.fold()
}

// Text compiles a string. It returns nil on an error.
func (c *Compiler) Text(path *field.Path, place expr.Place, text string) *Value {
	compiled, problems := expr.Compile(text, place, c.Mode, c.Scope)
	for _, p := range problems {
		if p.Warning {
			c.Warn(path, "%s", p.Error())
		} else {
			c.Refuse(path, text, "%s", p.Error())
		}
	}
	if compiled == nil {
		return nil
	}
	if !compiled.IsLiteral() {
		return &Value{text: compiled}
	}
	if ref, err := expr.ParseRef(text); err == nil && strings.HasPrefix(text, "@") && ref.Element != "" && place == expr.Arg {
		c.Warn(path, `%s is text here: write "{%s}" for its value`, text, text)
	}
	constant, err := compiled.Eval(nil)
	if err != nil {
		c.Refuse(path, text, "%v", err)
		return nil
	}
	return &Value{constant: constant}
}
