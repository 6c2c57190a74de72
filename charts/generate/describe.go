package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/settings"
)

// derive completes the hints of a value with the hint @setting by the declaration of the setting.
func (v *value) derive() error {
	name, ok := v.hints["setting"]
	if !ok {
		if key, of := strings.CutPrefix(v.path, "controller."); of && v.node.Kind != yaml.MappingNode && declaration(key) != nil {
			return fmt.Errorf("it is a setting: remove its comment and write the hint @setting %s", key)
		}
		return nil
	}
	d := declaration(name)
	if d == nil {
		return fmt.Errorf("unknown setting %s", name)
	}
	if pattern, ok := d.Schema["pattern"].(string); ok {
		v.hints["pattern"], v.hints["wanted"] = pattern, d.Schema[wanted].(string)
	}
	if d.Schema["anyOf"] != nil {
		v.hints["duration"] = ""
	}
	for hint, keyword := range map[string]string{"min": "minimum", "max": "maximum"} {
		if bound, ok := d.Schema[keyword]; ok {
			v.hints[hint] = fmt.Sprint(bound)
		}
	}
	return nil
}

// declaration returns a setting by its key or flag, or nil.
func declaration(name string) *settings.Documentation {
	all := settings.Documented()
	if i := slices.IndexFunc(all, func(d settings.Documentation) bool { return d.Key == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// describe writes the documentation of settings into values.yaml: above each hint @setting. What is below the hint is the chart's own.
func describe(data []byte) ([]byte, error) {
	lines := strings.Split(string(data), "\n")
	var out []string
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		name, ok := strings.CutPrefix(text, "# @setting ")
		if !ok {
			out = append(out, line)
			continue
		}
		d := declaration(name)
		if d == nil {
			return nil, fmt.Errorf("line %d: unknown setting %s", i+1, name)
		}
		for len(out) > 0 && strings.HasPrefix(strings.TrimLeft(out[len(out)-1], " "), "#") {
			out = out[:len(out)-1]
		}
		about := d.Doc
		if d.Default != "" && emptyBelow(lines[i+1:]) {
			about += " Empty: " + d.Default + "."
		}
		out = append(append(out, comment(about, line[:len(line)-len(text)])...), line)
	}
	return []byte(strings.Join(out, "\n")), nil
}

// emptyBelow reports whether the first value below is empty, so that the setting has its own default.
func emptyBelow(lines []string) bool {
	i := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(strings.TrimLeft(line, " "), "#") })
	return i >= 0 && (strings.HasSuffix(lines[i], `: ""`) || strings.HasSuffix(lines[i], ": null"))
}

// width is the length of comments in values.yaml.
const width = 128

// comment returns words as lines of a comment.
func comment(text, indent string) (lines []string) {
	var line bytes.Buffer
	line.WriteString(indent + "#")
	for word := range strings.FieldsSeq(text) {
		if line.Len()+1+len(word) > width {
			lines = append(lines, line.String())
			line.Reset()
			line.WriteString(indent + "#")
		}
		line.WriteString(" " + word)
	}
	return append(lines, line.String())
}
