// Package config reads the configuration files of the worker and the manager.
//
// A program declares its keys together with the variables for their values. All errors of a file are reported at once, in the form
// FILE:LINE:COLUMN: KEY: message. Unknown keys are warnings: files of NFD contain keys that have no effect here, and an older
// release must start with the file of a newer one.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// limits are the limits on a configuration. A ConfigMap has at most 1 MiB; aliases could expand to much more. NFD's nesting limit
// is 100 as well.
var limits = yamltree.Options{Bytes: 1 << 20, Nodes: 100_000, Depth: 100}

// Keys maps the keys of a section to their fields.
type Keys map[string]Field

// Field defines how the value of a key is read.
type Field struct {
	keys Keys // of a section
	read func(r *reader, n *yaml.Node, path string)
}

// Names returns all keys, sorted; keys in sections contain dots.
func (k Keys) Names() []string {
	var out []string
	for name, field := range k {
		out = append(out, name)
		for _, inner := range field.keys.Names() {
			out = append(out, name+"."+inner)
		}
	}
	slices.Sort(out)
	return out
}

// Load reads a file and then the value of the flag -options, which overrides it. If file equals standard, it need not exist. keys
// is called once for each of the two.
func Load(file, standard, options string, keys func() Keys) (warnings []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil && (file != standard || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	warnings, err = Read(file, data, keys())
	more, wrong := Read("-options", []byte(options), keys())
	return append(warnings, more...), errors.Join(err, wrong)
}

// Read reads one document into the variables of the keys. origin is the name of the document in messages. Variables with invalid
// values are not changed.
func Read(origin string, data []byte, keys Keys) (warnings []string, err error) {
	var errs []error
	for _, p := range Check(data, keys) {
		if text := origin + ":" + p.String(); p.Severity == yamltree.Warning {
			warnings = append(warnings, text)
		} else {
			errs = append(errs, errors.New(text))
		}
	}
	return warnings, errors.Join(errs...)
}

// Check is like Read and returns the problems: those of the syntax first. A program does not start with an error.
func Check(data []byte, keys Keys) []yamltree.Problem {
	text := yamltree.Parse(data, limits)
	r := &reader{problems: text.Problems}
	if len(text.Documents) > 0 {
		if root := text.Documents[0].Content[0]; !yamltree.IsNull(root) {
			r.section(root, "", keys)
		}
	}
	if len(text.Documents) > 1 {
		r.warnf(text.Documents[1].Content[0], "", "only the first document is read; this one is ignored")
	}
	return r.problems
}

// reader collects errors and warnings.
type reader struct {
	problems []yamltree.Problem
	errs     int // the number of errors among the problems
}

func (r *reader) errorf(n *yaml.Node, path, format string, args ...any) {
	r.errs++
	r.problems = append(r.problems, yamltree.Problem{Position: yamltree.At(n), Severity: yamltree.Error, Code: "invalid", Path: path, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) warnf(n *yaml.Node, path, format string, args ...any) {
	r.problems = append(r.problems, yamltree.Problem{Position: yamltree.At(n), Severity: yamltree.Warning, Code: "suspicious", Path: path, Message: fmt.Sprintf(format, args...)})
}

// expected reports a value of the wrong type.
func (r *reader) expected(n *yaml.Node, path, want string) {
	found := fmt.Sprintf("%q", short(n.Value))
	if n.Kind != yaml.ScalarNode {
		found = yamltree.Describe(n)
	}
	if path == "" {
		path = "the configuration"
	}
	r.errorf(n, path, "expected %s, found %s", want, found)
}

// section reads the values of known keys. Like NFD, it accepts keys that differ only in case, with a warning.
func (r *reader) section(n *yaml.Node, path string, known Keys) {
	if yamltree.IsNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.expected(n, path, "a map of keys to values")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name, ok := r.name(key, path, known)
		if !ok {
			continue
		}
		if line, twice := seen[name]; twice {
			r.errorf(key, join(path, name), "duplicate key, first on line %d", line)
			continue
		}
		seen[name] = key.Line
		if field := known[name]; field.read != nil {
			field.read(r, value, join(path, name))
		} else {
			r.section(value, join(path, name), field.keys)
		}
	}
}

// name returns the known key for a key.
func (r *reader) name(key *yaml.Node, path string, known Keys) (string, bool) {
	if _, ok := known[key.Value]; ok {
		return key.Value, true
	}
	names := slices.Sorted(maps.Keys(known))
	if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key.Value) }); i >= 0 {
		r.warnf(key, join(path, key.Value), "write %s", names[i])
		return names[i], true
	}
	hint := yamltree.DidYouMean(key.Value, names)
	if _, worker := known["sources"]; worker && key.Value == "rules" {
		hint = "; rules of the worker belong below sources.custom"
	}
	r.warnf(key, join(path, key.Value), "unknown key is ignored%s", hint)
	return "", false
}

func join(path, key string) string {
	if path == "" {
		return short(key)
	}
	return path + "." + short(key)
}

// maxShown is the maximum number of bytes of a value in a message.
const maxShown = 60

func short(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}
