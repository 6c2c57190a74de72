package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

// MatchOn rewrites the rules of a list that use matchOn, the first syntax of NFD's custom rules, to matchFeatures. It reports all
// errors at once and does not change rules with errors.
func MatchOn(rules *yaml.Node) ([]Note, error) {
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil, nil
	}
	var n notes
	var problems []error
	for i, rule := range rules.Content {
		if yamltree.Index(rule, "matchOn") < 0 {
			continue
		}
		n.where = "rule " + value(rule, "name")
		long, err := matchOnRule(rule)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %s: %w", rule.Line, n.where, err))
			continue
		}
		n.add(rule, "wrote matchOn as matchFeatures")
		rules.Content[i] = long
	}
	return n.list, errors.Join(problems...)
}

// customPrefix is the prefix of a label without a namespace.
const customPrefix = "custom-"

// matchOnRule converts one rule. The rule matches if any of its matchers matches; a matcher matches if all its parts match.
func matchOnRule(rule *yaml.Node) (*yaml.Node, error) {
	name, label := value(rule, "name"), "true"
	for i := 0; i < len(rule.Content); i += 2 {
		switch key := rule.Content[i].Value; key {
		case "name", "matchOn":
		case "value":
			if v := rule.Content[i+1]; !yamltree.IsNull(v) {
				label = scalarText(v)
			}
		default:
			return nil, fmt.Errorf("a rule with matchOn has name and value beside it, not %s", key)
		}
	}
	if name == "" {
		return nil, errors.New("name: required")
	}
	matchers := child(rule, "matchOn")
	if matchers == nil || matchers.Kind != yaml.SequenceNode || len(matchers.Content) == 0 {
		return nil, errors.New("matchOn: expected a list with at least one matcher")
	}
	key := name
	if !strings.Contains(name, "/") {
		key = customPrefix + name
	}
	out := mapping(text("name"), quoted(name), text("labels"), mapping(quoted(key), quoted(label)))
	commented(out, rule)
	if len(matchers.Content) == 1 {
		terms, err := matcherTerms(matchers.Content[0])
		set(out, "matchFeatures", terms)
		return out, err
	}
	any := sequence()
	for i, m := range matchers.Content {
		terms, err := matcherTerms(m)
		if err != nil {
			return nil, fmt.Errorf("matchOn[%d]: %w", i, err)
		}
		any.Content = append(any.Content, commented(mapping(text("matchFeatures"), terms), m))
	}
	set(out, "matchAny", any)
	return out, nil
}

// matcherTerms converts one matcher.
func matcherTerms(m *yaml.Node) (*yaml.Node, error) {
	if m.Kind != yaml.MappingNode || len(m.Content) == 0 {
		return nil, errors.New("expected pciId, usbId, loadedKMod, cpuId, kConfig or nodename")
	}
	terms := sequence()
	for i := 0; i < len(m.Content); i += 2 {
		name, input := m.Content[i].Value, m.Content[i+1]
		more, err := matcherPart(name, input)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(more) > 0 {
			more[0].HeadComment = m.Content[i].HeadComment
		}
		terms.Content = append(terms.Content, more...)
	}
	return terms, nil
}

// matcherPart converts one of NFD's legacy matchers.
func matcherPart(name string, input *yaml.Node) ([]*yaml.Node, error) {
	switch strings.ToLower(name) {
	case "pciid":
		return device("pci.device", input, "class", "vendor", "device")
	case "usbid":
		return device("usb.device", input, "class", "vendor", "device", "serial")
	}
	items, err := textList(input)
	if err != nil {
		return nil, err
	}
	switch strings.ToLower(name) {
	case "loadedkmod":
		return []*yaml.Node{all("kernel.loadedmodule", items)}, nil
	case "cpuid":
		return []*yaml.Node{all("cpu.cpuid", items)}, nil
	case "kconfig":
		return kconfig(items), nil
	case "nodename":
		patterns := sequence()
		for _, p := range items {
			patterns.Content = append(patterns.Content, quoted(p))
		}
		e := flow(mapping(text("op"), text("InRegexp"), text("value"), flow(patterns)))
		return []*yaml.Node{term("system.name", text("nodename"), e)}, nil
	}
	return nil, errors.New("unknown; expected pciId, usbId, loadedKMod, cpuId, kConfig or nodename")
}

func term(feature string, expressions ...*yaml.Node) *yaml.Node {
	return mapping(text("feature"), text(feature), text("matchExpressions"), mapping(expressions...))
}

// all returns a term that matches if all names exist.
func all(feature string, names []string) *yaml.Node {
	var expressions []*yaml.Node
	for i, name := range names {
		if !slices.Contains(names[:i], name) {
			expressions = append(expressions, text(name), exists(false, ""))
		}
	}
	return term(feature, expressions...)
}

// kconfig returns terms that match if each option is built in or a module, or has the given value. An option with two values needs
// two terms, because the keys of a map are unique.
func kconfig(options []string) []*yaml.Node {
	var terms []*yaml.Node
	for _, o := range options {
		name, want, equals := strings.Cut(o, "=")
		e := in(quoted("y"), quoted("m"))
		if equals {
			e = in(quoted(want))
		}
		at := slices.IndexFunc(terms, func(t *yaml.Node) bool { return yamltree.Index(child(t, "matchExpressions"), name) < 0 })
		if at < 0 {
			terms = append(terms, term("kernel.config", text(name), e))
			continue
		}
		set(child(terms[at], "matchExpressions"), name, e)
	}
	return terms
}

// device returns a term that matches if one device has one of the values for each attribute.
func device(feature string, input *yaml.Node, attributes ...string) ([]*yaml.Node, error) {
	if input.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("expected lists of %s", strings.Join(attributes, ", "))
	}
	var expressions []*yaml.Node
	for i := 0; i < len(input.Content); i += 2 {
		name := input.Content[i].Value
		if !slices.Contains(attributes, strings.ToLower(name)) {
			return nil, fmt.Errorf("unknown attribute %s, expected %s", name, strings.Join(attributes, ", "))
		}
		if yamltree.IsNull(input.Content[i+1]) {
			continue
		}
		items, err := textList(input.Content[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var values []*yaml.Node
		for _, item := range items {
			values = append(values, quoted(item))
		}
		expressions = append(expressions, text(strings.ToLower(name)), in(values...))
	}
	if len(expressions) == 0 {
		return nil, fmt.Errorf("expected at least one of %s", strings.Join(attributes, ", "))
	}
	return []*yaml.Node{term(feature, expressions...)}, nil
}

// textList returns a non-empty list of scalars as strings.
func textList(n *yaml.Node) ([]string, error) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return nil, errors.New("expected a list with at least one item")
	}
	var out []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || yamltree.IsNull(item) {
			return nil, fmt.Errorf("line %d: expected a list of strings", item.Line)
		}
		out = append(out, scalarText(item))
	}
	return out, nil
}

// customFields are the fields of rules in the worker's configuration.
var customFields = []string{"name", "labels", "labelsTemplate", "vars", "varsTemplate", "matchFeatures", "matchAny"}

// ignoredFields are fields that only the controller supports.
var ignoredFields = []string{"annotations", "taints", "extendedResources"}

// CustomRules converts the custom rules of a worker's configuration, a YAML or JSON list in any of NFD's notations. It returns the
// valid rules, and all errors of the others as one error.
func CustomRules(id string, source []byte) ([]nfdv1alpha1.Rule, []Note, error) {
	roots, err := compose.ParseTrees(id, source)
	if err != nil || len(roots) == 0 {
		return nil, nil, err
	}
	list := roots[0].Content[0]
	if yamltree.IsNull(list) {
		return nil, nil, nil
	}
	if list.Kind != yaml.SequenceNode || len(roots) > 1 {
		return nil, nil, fmt.Errorf("%s: expected one list of rules", id)
	}
	notes, problem := expandRules(list)
	problems := []error{problem}
	var out []nfdv1alpha1.Rule
	for _, n := range list.Content {
		if yamltree.Index(n, "matchOn") >= 0 {
			continue // already reported
		}
		rule, ignored, err := customRule(n)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: rule %s: %w", id, n.Line, value(n, "name"), err))
			continue
		}
		notes, out = append(notes, ignored...), append(out, rule)
	}
	return out, notes, errors.Join(problems...)
}

func customRule(n *yaml.Node) (rule nfdv1alpha1.Rule, ignored []Note, err error) {
	if n.Kind != yaml.MappingNode {
		return rule, nil, errors.New("expected a map of fields")
	}
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		key := n.Content[i]
		switch {
		case slices.Contains(customFields, key.Value):
		case slices.Contains(ignoredFields, key.Value):
			ignored = append(ignored, Note{Line: key.Line, Where: "rule " + value(n, "name"), Lost: true,
				Message: key.Value + " are ignored in the worker's rules; write a NodeFeatureRule"})
			n.Content = slices.Delete(n.Content, i, i+2)
		default:
			return rule, nil, fmt.Errorf("unknown field %s, expected one of %s", key.Value, strings.Join(customFields, ", "))
		}
	}
	if value(n, "name") == "" {
		return rule, nil, errors.New("name: required")
	}
	d := json.NewDecoder(strings.NewReader(string(yamltree.JSON(n))))
	d.DisallowUnknownFields()
	return rule, ignored, d.Decode(&rule)
}
