package convert

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// actionArgs maps Ironic's actions to the names of their arguments, in the order of the list form.
var actionArgs = map[string][]string{
	"fail":                  {"msg"},
	"log":                   {"msg", "level"},
	"set-plugin-data":       {"path", "value"},
	"extend-plugin-data":    {"path", "value", "unique"},
	"unset-plugin-data":     {"path"},
	"set-attribute":         {"path", "value"},
	"extend-attribute":      {"path", "value", "unique"},
	"del-attribute":         {"path"},
	"set-port-attribute":    {"port_id", "path", "value"},
	"extend-port-attribute": {"port_id", "path", "value", "unique"},
	"del-port-attribute":    {"port_id", "path"},
	"set-capability":        {"name", "value"},
	"unset-capability":      {"name"},
	"add-trait":             {"name"},
	"remove-trait":          {"name"},
	"api-call":              {"url", "headers", "timeout", "retries", "backoff_factor", "status_forcelist"},
}

func (c *ironic) actions() (*yaml.Node, error) {
	out := sequence()
	list := child(c.rule, "actions")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("actions: expected a list")
	}
	for i, action := range list.Content {
		op := value(action, "op")
		names, known := actionArgs[op]
		if !known {
			return nil, fmt.Errorf("line %d: actions[%d]: unknown action %q", action.Line, i, op)
		}
		args, err := namedArgs(child(action, "args"), names, op)
		if err != nil {
			return nil, fmt.Errorf("line %d: actions[%d]: %w", action.Line, i, err)
		}
		c.unknownKeys(action, "action "+op, "op", "args", "loop")
		c.unknownKeys(args, "args of "+op, names...)
		carried := c.carry(op, args)
		converted, problem := c.action(op, args, action)
		if problem != "" {
			c.lost(action, "action %s left out: %s", c.show(op, args), problem)
			continue
		}
		if carried != nil {
			out.Content = append(out.Content, carried)
		}
		out.Content = append(out.Content, commented(converted, action))
	}
	return out, nil
}

// carry returns an action that copies plugin data of an earlier rule that this rule extends, or nil if there is none. Plugin data
// belongs to the node, but a variable belongs to its object.
func (c *ironic) carry(op string, args *yaml.Node) *yaml.Node {
	name := variableName(value(args, "path"))
	if op != "extend-plugin-data" || c.vars[name] || !c.before[name] {
		return nil
	}
	e := expressions{ironic: c}
	return mapping(text("op"), text("set-var"), text("args"),
		mapping(text("name"), text(name), text("value"), quoted("{"+e.set(name)+"}")))
}

// unknownKeys adds notes on keys that are unknown or have no equivalent.
func (c *ironic) unknownKeys(m *yaml.Node, what string, known ...string) {
	for i := 0; m.Kind == yaml.MappingNode && i < len(m.Content); i += 2 {
		if key := m.Content[i]; !slices.Contains(known, key.Value) {
			c.lost(key, "%s: unknown key %s left out", what, key.Value)
		}
	}
}

// show describes an action by the name of what it changes. Values may be secret.
func (c *ironic) show(op string, args *yaml.Node) string {
	if path := value(args, "path"); path != "" {
		return op + " " + path
	}
	if name := value(args, "name"); name != "" && !c.sensitive {
		return op + " " + name
	}
	return op
}

// action converts one action, or returns the reason why it has no equivalent.
func (c *ironic) action(op string, args, action *yaml.Node) (out *yaml.Node, problem string) {
	e := expressions{ironic: c}
	into := mapping()
	newOp := op
	switch op {
	case "fail", "log":
		into = args
	case "set-plugin-data", "extend-plugin-data", "unset-plugin-data":
		name := variableName(value(args, "path"))
		newOp = strings.TrimSuffix(op, "-plugin-data") + "-var"
		set(into, "name", text(name))
		copyArgs(into, args, "value", "unique")
		defer func() { c.vars[name] = op != "unset-plugin-data" && problem == "" }()
	case "set-attribute", "extend-attribute", "del-attribute":
		path, none := attributePath(value(args, "path"))
		if none != "" {
			return nil, none
		}
		set(into, "path", text(path))
		copyArgs(into, args, "value", "unique")
	case "set-capability", "unset-capability", "add-trait", "remove-trait":
		newOp = "set-attribute"
		if op == "unset-capability" || op == "remove-trait" {
			newOp = "del-attribute"
		}
		set(into, "path", text("/labels/"+labelName(value(args, "name"))))
		copyArgs(into, args, "value")
		if op == "add-trait" {
			set(into, "value", quoted("true"))
		}
	case "api-call":
		return nil, "rules cannot call other programs; an event action can notify one"
	default:
		return nil, "ports have no equivalent; derive attributes of network.device with set-instance-attribute in phase preprocess"
	}
	out = mapping(text("op"), text(newOp), text("args"), e.tree(into))
	if loop := child(action, "loop"); loop != nil {
		set(out, "loop", e.tree(loop))
	}
	if len(e.problems) > 0 {
		return nil, strings.Join(e.problems, "; ")
	}
	if c.phase != "main" && strings.HasSuffix(newOp, "-attribute") {
		return nil, "labels and annotations can only be written in phase main"
	}
	return out, ""
}

func copyArgs(into, from *yaml.Node, names ...string) {
	for _, name := range names {
		if v := child(from, name); v != nil {
			set(into, name, v)
		}
	}
}

// variableName converts a path of plugin data, a/b or a.b, to the name of a variable.
func variableName(path string) string {
	return strings.ReplaceAll(strings.Trim(path, "/"), "/", ".")
}

// labelAttributes are attributes of Ironic's nodes that are useful as labels.
var labelAttributes = []string{"driver", "resource_class", "conductor_group"}

// attributePath returns the path in labels or annotations that corresponds to an attribute of an Ironic node.
func attributePath(path string) (to, none string) {
	parts := strings.SplitN(strings.Trim(strings.ReplaceAll(path, ".", "/"), "/"), "/", 2)
	rest := ""
	if len(parts) == 2 {
		rest = parts[1]
	}
	switch {
	case (parts[0] == "properties" || parts[0] == "traits") && rest != "":
		return "/labels/" + labelName(strings.TrimPrefix(rest, "capabilities/")), ""
	case parts[0] == "extra" && rest != "":
		return "/annotations/" + labelName(rest), ""
	case parts[0] == "description" && rest == "":
		return "/annotations/description", ""
	case parts[0] == "driver_info":
		return "", "data on the management of a machine has no equivalent, and secrets do not belong on Nodes"
	}
	for _, name := range labelAttributes {
		if parts[0] == name && rest == "" {
			return "/labels/" + name, ""
		}
	}
	return "", "this attribute of an Ironic node has no equivalent"
}

// labelName returns the name of a label for a path or a trait. It keeps expressions.
func labelName(name string) string { return strings.ReplaceAll(name, "/", ".") }
