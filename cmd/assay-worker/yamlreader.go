package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/suggest"
)

const (
	// maxConfigBytes bounds a configuration: a ConfigMap holds at most 1 MiB.
	maxConfigBytes = 1 << 20
	// maxConfigNodes bounds what a configuration becomes once its aliases are written out: each level of aliases can
	// multiply the one below.
	maxConfigNodes = 100_000
	// maxConfigDepth bounds how deep it is nested, as NFD does.
	maxConfigDepth = 100
	// maxGuess is how many letters a misspelt key may differ from the one that is proposed.
	maxGuess = 3
)

// reader reads one YAML document into variables. It collects all mistakes, each with its line and column, rather than stop
// at the first.
type reader struct {
	origin   string
	errs     []error
	warnings []string
}

// fields are the keys of a mapping and what reads their values.
type fields map[string]func(r *reader, n *yaml.Node, path string)

// parse returns the root of a document with its aliases written out; nil if it is empty.
func (r *reader) parse(data []byte) *yaml.Node {
	if len(data) > maxConfigBytes {
		r.errs = append(r.errs, fmt.Errorf("%s: %d bytes are more than the %d that a configuration may have", r.origin, len(data), maxConfigBytes))
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %s", r.origin, strings.TrimPrefix(err.Error(), "yaml: ")))
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	budget := maxConfigNodes
	root, err := expand(doc.Content[0], &budget, maxConfigDepth)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", r.origin, err))
		return nil
	}
	if isNull(root) {
		return nil
	}
	return root
}

// expand returns a copy of a tree with aliases written out.
func expand(n *yaml.Node, budget *int, depth int) (*yaml.Node, error) {
	*budget--
	switch {
	case *budget < 0:
		return nil, fmt.Errorf("line %d, column %d: aliases make the document larger than %d values", n.Line, n.Column, maxConfigNodes)
	case depth == 0:
		return nil, fmt.Errorf("line %d, column %d: nested deeper than %d", n.Line, n.Column, maxConfigDepth)
	case n.Kind == yaml.AliasNode:
		return expand(n.Alias, budget, depth-1)
	}
	out := *n
	out.Anchor, out.Content = "", make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		var err error
		if out.Content[i], err = expand(c, budget, depth-1); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// mapping reads the values of the known keys. Unknown ones draw a warning, since NFD ignores them; so do keys that differ
// in case only, which NFD accepts.
func (r *reader) mapping(n *yaml.Node, path string, known fields) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, "a mapping of keys to values")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		read, ok := known[name]
		if !ok {
			name, ok = r.guess(key, path, known)
			read = known[name]
		}
		if !ok {
			continue
		}
		if line, twice := seen[name]; twice {
			r.errorf(key, "%s: given twice, first in line %d", join(path, name), line)
			continue
		}
		seen[name] = key.Line
		read(r, value, join(path, name))
	}
}

// guess warns of an unknown key, and says which one may have been meant. One that differs in case only is taken.
func (r *reader) guess(key *yaml.Node, path string, known fields) (string, bool) {
	best, distance := "", maxGuess+1
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if strings.EqualFold(name, key.Value) {
			r.warnf(key, "%s: write %s", join(path, key.Value), name)
			return name, true
		}
		if d := suggest.Distance(strings.ToLower(name), strings.ToLower(key.Value), distance); d < distance {
			best, distance = name, d
		}
	}
	if best != "" && distance < len(best) {
		r.warnf(key, "%s: unknown, and ignored; did you mean %s?", join(path, key.Value), best)
	} else {
		r.warnf(key, "%s: unknown, and ignored", join(path, key.Value))
	}
	return "", false
}

func section(known fields) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) { r.mapping(n, path, known) }
}

func text(dst *string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		switch {
		case isNull(n):
			*dst = ""
		case n.Kind != yaml.ScalarNode:
			r.fail(n, path, "text")
		default:
			*dst = n.Value
		}
	}
}

func flagValue(dst *bool) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		var v bool // of YAML 1.1 as well: yes, no, on, off
		if n.Kind != yaml.ScalarNode || n.Decode(&v) != nil {
			r.fail(n, path, "true or false")
			return
		}
		*dst = v
	}
}

func texts(dst *[]string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.fail(n, path, "a list of texts")
			return
		}
		list := []string{}
		for i, item := range n.Content {
			var s string
			text(&s)(r, item, fmt.Sprintf("%s[%d]", path, i))
			list = append(list, s)
		}
		*dst = list
	}
}

func textLists(dst *[][]string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.fail(n, path, "a list of lists of texts")
			return
		}
		lists := [][]string{}
		for i, item := range n.Content {
			var list []string
			texts(&list)(r, item, fmt.Sprintf("%s[%d]", path, i))
			lists = append(lists, list)
		}
		*dst = lists
	}
}

func textMap(dst *map[string]string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		if n.Kind != yaml.MappingNode {
			r.fail(n, path, "a mapping of texts")
			return
		}
		m := map[string]string{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			var s string
			text(&s)(r, n.Content[i+1], join(path, n.Content[i].Value))
			m[n.Content[i].Value] = s
		}
		*dst = m
	}
}

func textListMap(dst *map[string][]string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		if n.Kind != yaml.MappingNode {
			r.fail(n, path, "a mapping of lists of texts")
			return
		}
		m := map[string][]string{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			list := []string{}
			texts(&list)(r, n.Content[i+1], join(path, n.Content[i].Value))
			m[n.Content[i].Value] = list
		}
		*dst = m
	}
}

func textMaps(dst *[]map[string]string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.fail(n, path, "a list of mappings")
			return
		}
		list := []map[string]string{}
		for i, item := range n.Content {
			m := map[string]string{}
			textMap(&m)(r, item, fmt.Sprintf("%s[%d]", path, i))
			list = append(list, m)
		}
		*dst = list
	}
}

func duration(dst *time.Duration) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			return
		}
		d, err := time.ParseDuration(n.Value)
		if n.Value == "0" || n.Value == "-1" {
			d, err = 0, nil
		}
		if n.Kind != yaml.ScalarNode || err != nil {
			r.fail(n, path, "a time such as 60s or 5m")
			return
		}
		*dst = d
	}
}

func integer(dst *int) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		var v int
		if isNull(n) {
			return
		}
		if n.Kind != yaml.ScalarNode || n.Decode(&v) != nil {
			r.fail(n, path, "a whole number")
			return
		}
		*dst = v
	}
}

// raw keeps a value as YAML, for those who read it later.
func raw(dst *[]byte) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if isNull(n) {
			*dst = nil
			return
		}
		data, err := yaml.Marshal(n)
		if err != nil {
			r.errorf(n, "%s: %v", path, err)
			return
		}
		*dst = data
	}
}

// ignored accepts a key that has no effect here.
func ignored(why string) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		if why != "" && !isNull(n) {
			r.warnf(n, "%s has no effect: %s", path, why)
		}
	}
}

func (r *reader) fail(n *yaml.Node, path, want string) {
	got := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}[n.Kind]
	if got == "" {
		got = fmt.Sprintf("%q", short(n.Value))
	}
	r.errorf(n, "%s: got %s, want %s", path, got, want)
}

func (r *reader) errorf(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: line %d, column %d: %s", r.origin, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

func (r *reader) warnf(n *yaml.Node, format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf("%s: line %d, column %d: %s", r.origin, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func join(path, key string) string {
	if path == "" {
		return short(key)
	}
	return path + "." + short(key)
}

// short cuts text for a message.
func short(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
