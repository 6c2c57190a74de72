package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

// Ironic converts inspection rules of OpenStack Ironic to one NodeFeatureRule each, since priority, phase, scope and sensitive are
// fields of the object. The source is a YAML or JSON list, or the response of Ironic's API. Ironic evaluates rules of equal
// priority in list order; the names of the objects keep this order. Input without an equivalent is left out, with a note. Notes
// about a sensitive rule contain no values.
func Ironic(id string, source []byte) ([]*yaml.Node, []Note, error) {
	roots, err := compose.ParseTrees(id, source)
	if err != nil {
		return nil, nil, err
	}
	var rules []*yaml.Node
	for _, root := range roots {
		list := root.Content[0]
		if inner := child(list, "inspection_rules"); inner != nil {
			list = inner
		}
		if list.Kind == yaml.MappingNode {
			list = sequence(list)
		}
		if list.Kind != yaml.SequenceNode {
			return nil, nil, fmt.Errorf("%s:%d: expected a list of inspection rules", id, list.Line)
		}
		rules = append(rules, list.Content...)
	}
	var objects []*yaml.Node
	var notes []Note
	produced, before := pluginData(rules), map[string]bool{}
	for i, rule := range rules {
		if rule.Kind != yaml.MappingNode {
			return nil, nil, fmt.Errorf("%s:%d: expected an inspection rule, a map of fields", id, rule.Line)
		}
		c := newIronic(rule, i+1, produced)
		c.before = before
		object, err := c.convert()
		maps.Copy(before, pluginData(rules[i:i+1]))
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %s: %w", id, rule.Line, c.where, err)
		}
		notes = append(notes, c.list...)
		if object != nil {
			objects = append(objects, object)
		}
	}
	return objects, notes, nil
}

// pluginData returns the plugin data that actions of the rules write.
func pluginData(rules []*yaml.Node) map[string]bool {
	out := map[string]bool{}
	for _, rule := range rules {
		list := child(rule, "actions")
		if list == nil {
			continue
		}
		for _, action := range list.Content {
			op := value(action, "op")
			args, err := namedArgs(child(action, "args"), actionArgs[op], op)
			if (op == "set-plugin-data" || op == "extend-plugin-data") && err == nil {
				out[variableName(value(args, "path"))] = true
			}
		}
	}
	return out
}

// ironic converts one rule.
type ironic struct {
	notes
	rule      *yaml.Node
	name      string
	number    int
	phase     string
	sensitive bool
	vars      map[string]bool // set by an action of this rule so far
	produced  map[string]bool // set by some rule
	before    map[string]bool // set by an earlier rule of the list
}

func newIronic(rule *yaml.Node, number int, produced map[string]bool) *ironic {
	c := &ironic{rule: rule, number: number, phase: "main", vars: map[string]bool{}, produced: produced}
	c.name = value(rule, "description")
	if c.name == "" {
		c.name = value(rule, "uuid")
	}
	if c.name == "" {
		c.name = fmt.Sprintf("rule %d", number)
	}
	if p := value(rule, "phase"); p != "" {
		c.phase = p
	}
	c.sensitive = value(rule, "sensitive") == "true"
	c.where = fmt.Sprintf("rule %q", c.name)
	return c
}

// readOnly are fields in responses of Ironic's API that users do not write.
var readOnly = []string{"uuid", "created_at", "updated_at", "built_in", "links"}

// convert returns the object, or nil if no part of the rule has an equivalent.
func (c *ironic) convert() (*yaml.Node, error) {
	spec := mapping()
	for i := 0; i < len(c.rule.Content); i += 2 {
		key, v := c.rule.Content[i], c.rule.Content[i+1]
		switch key.Value {
		case "description", "priority", "phase", "scope", "sensitive":
			if !yamltree.IsNull(v) {
				set(spec, key.Value, commented(text(v.Value), v))
				spec.Content[len(spec.Content)-1].Tag = v.Tag
			}
		case "conditions", "actions":
		default:
			if !slices.Contains(readOnly, key.Value) {
				return nil, fmt.Errorf("line %d: unknown field %s", key.Line, key.Value)
			}
		}
	}
	if p, err := strconv.Atoi(value(c.rule, "priority")); err == nil && (p < 0 || p > 9999) {
		c.add(c.rule, "priority %d is for built-in rules: put the rules into the controller's built-in directory", p)
	}
	rule := mapping(text("name"), text(c.name))
	conditions, err := c.conditions()
	if err != nil {
		return nil, err
	}
	if len(conditions.Content) > 0 {
		set(rule, "conditions", conditions)
	}
	actions, err := c.actions()
	if err != nil {
		return nil, err
	}
	if len(actions.Content) == 0 {
		c.lost(c.rule, "left out: no action of it has an equivalent")
		return nil, nil
	}
	set(rule, "actions", actions)
	set(spec, "rules", sequence(rule))
	object := mapping(
		text("apiVersion"), text(nfdVersion),
		text("kind"), text("NodeFeatureRule"),
		text("metadata"), mapping(text("name"), text(objectName(fmt.Sprintf("ironic-%03d", c.number), c.name))),
		text("spec"), spec,
	)
	object.HeadComment = c.rule.HeadComment
	return object, nil
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// objectName returns the name of an object from a prefix and free text.
func objectName(prefix, free string) string {
	slug := strings.Trim(notName.ReplaceAllString(strings.ToLower(free), "-"), "-")
	if slug == "" {
		return prefix
	}
	name := prefix + "-" + slug
	if len(name) > 63 {
		name = name[:63]
	}
	return strings.TrimRight(name, "-")
}

// conditionArgs maps operators to the names of their arguments, in the order of the list form. eq, lt and gt take all arguments as
// one list.
var conditionArgs = map[string][]string{
	"eq": nil, "lt": nil, "gt": nil,
	"is-true": {"value"}, "is-false": {"value"}, "is-none": {"value"}, "is-empty": {"value"},
	"in-net":  {"address", "subnet"},
	"matches": {"value", "regex"}, "contains": {"value", "regex"},
	"one-of": {"value", "values"},
}

func (c *ironic) conditions() (*yaml.Node, error) {
	out := sequence()
	list := child(c.rule, "conditions")
	if list == nil {
		return out, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: conditions: expected a list", list.Line)
	}
	for i, condition := range list.Content {
		op := value(condition, "op")
		bare, inverted := strings.CutPrefix(op, "!")
		bare = strings.TrimSpace(bare)
		names, known := conditionArgs[bare]
		if !known {
			return nil, fmt.Errorf("line %d: conditions[%d]: unknown operator %q (quote operators that begin with !)", condition.Line, i, op)
		}
		args, err := namedArgs(child(condition, "args"), names, bare)
		if err != nil {
			return nil, fmt.Errorf("line %d: conditions[%d]: %w", condition.Line, i, err)
		}
		c.unknownKeys(condition, "condition "+op, "op", "args", "loop", "multiple", "invert")
		if names == nil {
			names = []string{"values", "force_strings"}
		}
		c.unknownKeys(args, "args of "+op, names...)
		e := expressions{ironic: c}
		converted := mapping(text("op"), text(bare))
		commented(converted, condition)
		if inverted != (value(condition, "invert") == "true") {
			set(converted, "invert", boolean(true))
		}
		set(converted, "args", e.tree(args))
		if loop := child(condition, "loop"); loop != nil {
			set(converted, "loop", e.tree(loop))
		}
		if m := child(condition, "multiple"); m != nil {
			set(converted, "multiple", m)
		}
		if len(e.problems) > 0 {
			c.lost(condition, "condition %s left out, so that the rule applies to more nodes than it did: %s", op, strings.Join(e.problems, "; "))
			continue
		}
		if regex := child(args, "regex"); regex != nil {
			if _, err := regexp.Compile(regex.Value); err != nil {
				c.add(regex, "the regular expression is not supported by Go (no look-around, no back-references): %v", err)
			}
		}
		out.Content = append(out.Content, converted)
	}
	return out, nil
}

// namedArgs returns arguments as a map by name.
func namedArgs(args *yaml.Node, names []string, op string) (*yaml.Node, error) {
	switch {
	case args == nil:
		return nil, fmt.Errorf("%s: expected args", op)
	case args.Kind == yaml.MappingNode:
		return args, nil
	case args.Kind != yaml.SequenceNode:
		args = sequence(args)
	}
	if names == nil { // eq, lt, gt: the arguments, or one list of them
		values := args
		if len(args.Content) == 1 && args.Content[0].Kind == yaml.SequenceNode {
			values = args.Content[0]
		}
		return mapping(text("values"), flow(sequence(values.Content...))), nil
	}
	if len(args.Content) > len(names) {
		return nil, fmt.Errorf("%s: expected %s, found %d arguments", op, strings.Join(names, ", "), len(args.Content))
	}
	out := mapping()
	for i, a := range args.Content {
		set(out, names[i], a)
	}
	return out, nil
}
