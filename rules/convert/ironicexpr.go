package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// expressions converts Python's format fields in the strings of a tree.
type expressions struct {
	*ironic
	problems []string
}

// tree returns a copy of a tree with its strings converted.
func (e *expressions) tree(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = nil
	if n.Kind == yaml.ScalarNode && yamltree.IsString(n) && strings.ContainsAny(n.Value, "{}") {
		out.Value = e.text(n)
		out.Style = yaml.DoubleQuotedStyle
		return &out
	}
	for _, c := range n.Content {
		out.Content = append(out.Content, e.tree(c))
	}
	return &out
}

// text converts one string. Doubled braces have the same meaning in both languages.
func (e *expressions) text(n *yaml.Node) string {
	var out strings.Builder
	for s := n.Value; s != ""; {
		switch {
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			out.WriteString(s[:2])
			s = s[2:]
		case s[0] == '{':
			end := strings.IndexByte(s, '}')
			if end < 0 {
				e.problem("%q has a { without a }", e.hide(n.Value))
				return n.Value
			}
			if repetition.MatchString(s[:end+1]) {
				out.WriteString(s[:end+1])
			} else {
				out.WriteString(e.field(n, s[1:end]))
			}
			s = s[end+1:]
		default:
			next := strings.IndexAny(s[1:], "{}") + 1
			if next == 0 {
				next = len(s)
			}
			out.WriteString(s[:next])
			s = s[next:]
		}
	}
	return out.String()
}

// repetition matches a repetition in a regular expression, which is not a format field.
var repetition = regexp.MustCompile(`^\{[0-9]+(,[0-9]*)?\}$`)

func (e *expressions) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf(format, args...))
}

func (e *expressions) hide(s string) string {
	if e.sensitive {
		return "***"
	}
	return s
}

// field converts the text between braces: a name, .attributes and [keys], and an optional format.
func (e *expressions) field(n *yaml.Node, field string) string {
	name, spec := field, ""
	if at := strings.IndexByte(field, ':'); at >= 0 {
		name, spec = field[:at], field[at:]
	}
	name, _, _ = strings.Cut(name, "!") // !s and !r do not affect the result
	path := steps(name)
	if strings.Count(name, "[") > strings.Count(name, "]") {
		e.add(n, "{%s} lacks a ]; read as {%s]}", name, name)
	}
	to, none := e.reference(n, path)
	if none != "" {
		e.problem("{%s}: %s", name, none)
		return "{" + field + "}"
	}
	return "{" + to + spec + "}"
}

var separators = regexp.MustCompile(`[\[\].]+`)

// steps splits a[b][0].c into a, b, 0, c.
func steps(name string) []string {
	return slices.DeleteFunc(separators.Split(name, -1), func(s string) bool { return s == "" })
}

const noEquivalent = "no equivalent"

// reference converts a path in Ironic's rules.
func (e *expressions) reference(n *yaml.Node, path []string) (to, none string) {
	if len(path) == 0 {
		return "", "it is empty"
	}
	rest := path[1:]
	switch path[0] {
	case "item":
		return "item" + brackets(rest), ""
	case "node":
		if len(rest) == 0 || len(rest) == 1 && rest[0] == "name" {
			return "node", ""
		}
		return "", noEquivalent + " (a Kubernetes Node knows nothing of it)"
	case "plugin_data":
		if len(rest) == 0 {
			return "", noEquivalent
		}
		return e.variable(n, rest), ""
	case "ports":
		return devices(rest)
	case "inventory":
		return e.inventory(rest)
	}
	return "", noEquivalent
}

var bareName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// variable returns a reference to a variable that this rule or an earlier one sets. If only a prefix of the path is a variable, the
// reference is to an element of it.
func (e *expressions) variable(n *yaml.Node, path []string) string {
	for i := len(path); i > 0; i-- {
		if name := strings.Join(path[:i], "."); e.vars[name] || e.produced[name] {
			return e.set(name) + keysOf(path[i:])
		}
	}
	name := strings.Join(path, ".")
	e.add(n, "plugin data %s is read as a variable; none of these rules sets it, so another one has to", name)
	return e.set(name)
}

// set returns a reference to a variable that a rule sets.
func (e *expressions) set(name string) string {
	switch {
	case e.vars[name]:
		return fmt.Sprintf("vars[%q]", name)
	case bareName.MatchString(name):
		return "@rule.matched." + name
	}
	return fmt.Sprintf("@%q", "rule.matched."+name)
}

// keysOf formats steps as [0] and ["key"]. After a reference, .key would be part of its name.
func keysOf(path []string) string {
	var out strings.Builder
	for _, step := range path {
		if strings.Trim(step, "0123456789") == "" {
			out.WriteString("[" + step + "]")
			continue
		}
		fmt.Fprintf(&out, "[%q]", step)
	}
	return out.String()
}

// inventoryFeatures maps the parts of Ironic's inventory to features.
var inventoryFeatures = map[string]string{
	"system_vendor.manufacturer":        "@system.dmiid.sys_vendor",
	"system_vendor.product_name":        "@system.dmiid.product_name",
	"system_vendor.firmware.vendor":     "@system.dmiid.bios_vendor",
	"system_vendor.firmware.version":    "@system.dmiid.bios_version",
	"system_vendor.firmware.build_date": "@system.dmiid.bios_date",
	"cpu.count":                         "@cpu.topology.cpu_count",
	"cpu.architecture":                  "@cpu.model.architecture",
	"cpu.model_name":                    "@cpu.model.name",
	"cpu.flags":                         "@cpu.cpuid",
	"memory.total":                      "@memory.total.bytes",
	"memory.physical_mb":                "@memory.total.mib",
	"hostname":                          "node",
	"disks":                             "@storage.block",
}

func (e *expressions) inventory(path []string) (to, none string) {
	if len(path) > 0 && path[0] == "interfaces" {
		return devices(path[1:])
	}
	name := strings.Join(path, ".")
	if to, ok := inventoryFeatures[name]; ok {
		return to, ""
	}
	switch {
	case strings.HasPrefix(name, "bmc_"):
		return "", noEquivalent + ": the cluster has no information about how a machine is managed"
	case strings.HasPrefix(name, "disks."):
		return "@storage.block[" + path[1] + "]" + brackets(path[2:]), ""
	}
	return "", noEquivalent
}

// deviceAttributes maps Ironic's attribute names to those of network.device.
var deviceAttributes = map[string]string{"name": "name", "speed_mbps": "speed"}

// devices returns a reference to all network interfaces, to one of them, or to an attribute of one.
func devices(path []string) (to, none string) {
	to = "@network.device"
	if len(path) > 0 {
		to += "[" + path[0] + "]"
	}
	if len(path) > 1 {
		attribute := deviceAttributes[path[1]]
		if attribute == "" || len(path) > 2 {
			return "", noEquivalent + ": network.device has name, operstate, speed and mtu"
		}
		to += "." + attribute
	}
	return to, ""
}

// brackets formats steps as [0], .key and ["other key"].
func brackets(path []string) string {
	var out strings.Builder
	for _, step := range path {
		if strings.Trim(step, "0123456789") == "" {
			out.WriteString("[" + step + "]")
			continue
		}
		if bareName.MatchString(step) {
			out.WriteString("." + step)
			continue
		}
		fmt.Fprintf(&out, "[%q]", step)
	}
	return out.String()
}
