package manifest

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The bounds of one text.
const (
	// MaxText is the size of a file in bytes. An API server takes objects of 1.5 MiB; a file may hold some.
	MaxText = 16 << 20
	// MaxDocuments is how many documents a file may hold: a chart with everything in it renders a hundred.
	MaxDocuments = 10_000
	// MaxNodes is how many nodes a file has once its aliases are expanded. Nine lines of YAML with aliases of aliases come
	// to a billion.
	MaxNodes = 1 << 20
	// MaxNesting is how deep they nest.
	MaxNesting = 100
)

// Parse reads every document of a text. It always returns a File; what is wrong is among its Problems.
func Parse(name string, data []byte) *File {
	f := &File{Name: name}
	if problem := unreadable(data); problem != nil {
		f.Problems = append(f.Problems, *problem)
		return f
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	source := string(data)
	f.lines = strings.Split(strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n"), "\n")
	p := &parser{file: f}
	for _, c := range chunks(f.lines) {
		p.chunk(c)
	}
	Sort(f.Problems)
	return f
}

// unreadable says why bytes are no text, if they are not.
func unreadable(data []byte) *Problem {
	at := func(offset int, format string, args ...any) *Problem {
		before := data[:offset]
		line := bytes.Count(before, []byte("\n")) + 1
		column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
		return &Problem{Position: Position{line, column}, Severity: Error, Code: "encoding", Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(data) > MaxText:
		return at(0, "the file is larger than %d MiB; no API server takes objects of that size", MaxText>>20)
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		return at(0, "the file is UTF-16; save it as UTF-8")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return at(i, "the file is binary, no YAML")
	}
	if !utf8.Valid(data) {
		for i := 0; i < len(data); {
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size <= 1 {
				return at(i, "the byte 0x%02x is no UTF-8; save the file as UTF-8", data[i])
			}
			i += size
		}
	}
	return nil
}

// chunk is the text of one document.
type chunk struct {
	text  string
	first int // the number of its first line, from 0
}

// chunks cuts a text at its separators, so that a mistake in one document does not hide the others.
func chunks(lines []string) []chunk {
	var out []chunk
	start := 0
	cut := func(end int) {
		if body := lines[start:end]; !blank(body) {
			out = append(out, chunk{text: strings.Join(body, "\n") + "\n", first: start})
		}
	}
	for i, line := range lines {
		switch {
		case line == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t"):
			cut(i)
			start = i
		case line == "..." || strings.HasPrefix(line, "... "):
			cut(i)
			start = i + 1
		}
	}
	cut(len(lines))
	return out
}

// blank reports whether there is nothing but comments in a document.
func blank(lines []string) bool {
	for _, line := range lines {
		line = strings.TrimSpace(strings.TrimPrefix(line, "---"))
		if line != "" && line[0] != '#' && !strings.HasPrefix(line, "%YAML") {
			return false
		}
	}
	return true
}

// parser reads the documents of one file.
type parser struct {
	file  *File
	nodes int
}

func (p *parser) problem(at Position, code, format string, args ...any) {
	p.file.Problems = append(p.file.Problems, Problem{
		Position: at, Severity: Error, Code: code, Message: fmt.Sprintf(format, args...),
	})
}

func (p *parser) chunk(c chunk) {
	if len(p.file.Documents) >= MaxDocuments {
		return
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(c.text), &root); err != nil {
		p.syntax(c, err)
		return
	}
	if len(root.Content) == 0 {
		return
	}
	top := p.expand(root.Content[0], c.first, 0, map[*yaml.Node]bool{})
	if top == nil || isNull(top) {
		return
	}
	p.document(top, "")
}

// document takes over one object, or those in a List.
func (p *parser) document(n *yaml.Node, prefix string) {
	d := &Document{Root: n, file: p.file, prefix: prefix, bad: map[*yaml.Node]bool{}}
	d.describe()
	items := Field(n, "items")
	if strings.HasSuffix(d.Kind, "List") && items != nil && items.Kind == yaml.SequenceNode && prefix == "" {
		for i, item := range items.Content {
			p.document(item, fmt.Sprintf("items[%d].", i))
		}
		return
	}
	p.file.Documents = append(p.file.Documents, d)
	if len(p.file.Documents) == MaxDocuments {
		p.problem(position(n), "limit", "the file holds more than %d documents; the others are not looked at", MaxDocuments)
	}
}

// expand copies a tree with every alias replaced by what it stands for, and with the lines of the whole file. It returns nil
// if the tree is over a limit.
func (p *parser) expand(n *yaml.Node, first, depth int, open map[*yaml.Node]bool) *yaml.Node {
	// YAML breaks lines at characters that no editor does, such as U+2028; no place is behind the end for it.
	at := Position{min(n.Line+first, len(p.file.lines)), n.Column}
	alias := n.Kind == yaml.AliasNode
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if open[n] {
		p.problem(at, "syntax", "the anchor &%s is used within itself", n.Anchor)
		return nil
	}
	switch p.nodes++; {
	case p.nodes > MaxNodes:
		if p.nodes == MaxNodes+1 {
			p.problem(at, "limit", "with its aliases expanded the file has more than %d nodes", MaxNodes)
		}
		return nil
	case depth > MaxNesting:
		p.problem(at, "limit", "nested deeper than %d levels", MaxNesting)
		return nil
	}
	out := *n
	out.Line, out.Anchor, out.Alias, out.Content = min(n.Line+first, len(p.file.lines)), "", nil, nil
	if alias {
		out.Line, out.Column = at.Line, at.Column
	}
	if len(n.Content) == 0 {
		return &out
	}
	open[n] = true
	defer delete(open, n)
	if n.Kind == yaml.MappingNode {
		return p.mapping(&out, n, first, depth, open)
	}
	for _, c := range n.Content {
		e := p.expand(c, first, depth+1, open)
		if e == nil {
			return nil
		}
		out.Content = append(out.Content, e)
	}
	return &out
}

// mapping expands a map, with what << merges into it.
func (p *parser) mapping(out, n *yaml.Node, first, depth int, open map[*yaml.Node]bool) *yaml.Node {
	seen := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := p.expand(n.Content[i+1], first, depth+1, open)
		key := p.expand(n.Content[i], first, depth+1, open)
		if key == nil || value == nil {
			return nil
		}
		if n.Content[i].ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind != yaml.ScalarNode && strings.HasPrefix(p.file.from(position(out)), "{{") {
			p.problem(position(out), "syntax", "%s", helmReason)
			return nil
		}
		if key.Kind != yaml.ScalarNode {
			p.problem(position(key), "syntax", "%s cannot be a key; put text that begins with a brace in quotes", article(key))
			continue
		}
		if before, ok := seen[key.Value]; ok {
			p.problem(position(key), "duplicate-key", "the key %q is already on line %d; one of the two would be lost", key.Value, before.Line)
			continue
		}
		seen[key.Value] = key
		out.Content = append(out.Content, key, value)
	}
	for _, m := range merged {
		p.merge(out, m, seen)
	}
	return out
}

func (p *parser) merge(out, m *yaml.Node, seen map[string]*yaml.Node) {
	sources := []*yaml.Node{m}
	if m.Kind == yaml.SequenceNode {
		sources = m.Content
	}
	for _, s := range sources {
		if s.Kind != yaml.MappingNode {
			p.problem(position(s), "syntax", "<< merges maps, found %s", article(s))
			continue
		}
		for i := 0; i+1 < len(s.Content); i += 2 {
			if _, ok := seen[s.Content[i].Value]; !ok {
				seen[s.Content[i].Value] = s.Content[i]
				out.Content = append(out.Content, s.Content[i], s.Content[i+1])
			}
		}
	}
}
