package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/settings"
)

// value is one entry of values.yaml with its comment.
type value struct {
	path  string
	name  string
	about string // the comment without its hints
	hints map[string]string
	node  *yaml.Node
	below []*value // of a mapping that lists its keys
	// beside are the entries of the same mapping.
	beside []*value
}

// ofChart is the setting that the chart sets itself: the directory in which it mounts the rules of the value controller.builtInRules.
const ofChart = "builtInRules"

// parse reads values.yaml.
func parse(data []byte) (*value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	root := &value{node: document.Content[0], hints: map[string]string{}}
	return root, root.descend()
}

// descend reads the entries of a mapping.
func (v *value) descend() error {
	if v.node.Kind != yaml.MappingNode {
		return nil
	}
	if v.any() {
		return nil
	}
	for i := 0; i < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		child := &value{name: key.Value, path: strings.TrimPrefix(v.path+"."+key.Value, "."), node: node}
		if err := child.comment(key.HeadComment); err != nil {
			return fmt.Errorf("line %d: %s: %w", key.Line, child.path, err)
		}
		if err := child.descend(); err != nil {
			return err
		}
		if child.about == "" && len(child.below) == 0 {
			return fmt.Errorf("line %d: %s: say in a comment above it what it is", key.Line, child.path)
		}
		if node.Kind == yaml.MappingNode && len(child.below) == 0 {
			if !child.any() {
				return fmt.Errorf("line %d: %s: an empty mapping accepts nothing; add the hint @open", key.Line, child.path)
			}
		}
		v.below = append(v.below, child)
	}
	for _, child := range v.below {
		child.beside = v.below
	}
	return nil
}

// settings reports whether the value is the configuration of the controller.
func (v *value) settings() bool { return v.hints["config"] == settings.Schema()["title"] }

// any reports whether the keys of the value are not those of values.yaml.
func (v *value) any() bool {
	return slices.ContainsFunc([]string{"open", "config", "resources", "durations", "like"}, func(name string) bool {
		_, ok := v.hints[name]
		return ok
	})
}

// hint is a line of a comment that belongs to the schema.
var hint = regexp.MustCompile(`^@(\w+)\s*(.*)$`)

// comment splits a comment into text and hints. Text before an empty line is about the file and not included.
func (v *value) comment(text string) error {
	v.hints = map[string]string{}
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		m := hint.FindStringSubmatch(line)
		if m == nil {
			lines = append(lines, line)
			continue
		}
		switch m[1] {
		case "type", "enum", "min", "max", "pattern", "items", "wanted", "open", "config", "resources", "duration", "durations", "like", "alias", "accepts", "setting":
			v.hints[m[1]] = m[2]
		default:
			return fmt.Errorf("there is no hint @%s", m[1])
		}
	}
	if err := v.derive(); err != nil {
		return err
	}
	if (v.hints["pattern"] != "" || v.hints["items"] != "") && v.hints["wanted"] == "" {
		return errors.New("say what the pattern means with the hint @wanted")
	}
	v.about = strings.TrimSpace(strings.Join(lines, " "))
	return nil
}

// types returns the JSON types of the value.
func (v *value) types() ([]string, error) {
	if given, ok := v.hints["type"]; ok {
		return strings.Split(given, "|"), nil
	}
	switch v.node.Kind {
	case yaml.MappingNode:
		return []string{"object", "null"}, nil
	case yaml.SequenceNode:
		return []string{"array", "null"}, nil
	}
	switch v.node.Tag {
	case "!!bool":
		return []string{"boolean"}, nil
	case "!!int":
		return []string{"integer"}, nil
	case "!!str":
		return []string{"string"}, nil
	}
	return nil, fmt.Errorf("%s: its default does not show its type; add the hint @type", v.path)
}
