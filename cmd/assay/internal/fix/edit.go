package fix

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edit replaces a part of a string.
type edit struct {
	from, to int
	text     string
}

// editor converts the differences between two trees of a file to edits.
type editor struct {
	*source
	was   map[*yaml.Node]*yaml.Node // maps the nodes of the new tree to those of the old tree
	edits []edit
	err   error
}

// pair records the corresponding nodes of two equal trees.
func (e *editor) pair(old, now *yaml.Node) {
	e.was[now] = old
	for i := range now.Content {
		e.pair(old.Content[i], now.Content[i])
	}
}

var comment = regexp.MustCompile(`(^|\s)#`)

// put records an edit. Removing a comment is an error.
func (e *editor) put(from, to int, text string) {
	if from > to || len(comment.FindAllString(e.text[from:to], -1)) > len(comment.FindAllString(text, -1)) {
		e.err = errPlace
		return
	}
	e.edits = append(e.edits, edit{from, to, text})
}

func (e *editor) insert(at int, text string) { e.put(at, at, text) }

// find returns the range of a node in the text, or an empty range after an error.
func (e *editor) find(n *yaml.Node) (from, to int) {
	from, to, err := e.span(n)
	if err != nil {
		e.err = err
	}
	return from, to
}

// apply returns the edited text, or nil if an edit is not possible.
func (e *editor) apply() []byte {
	if e.err != nil || len(e.edits) == 0 {
		return nil
	}
	slices.SortStableFunc(e.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out bytes.Buffer
	at := 0
	for _, x := range e.edits {
		if x.from < at {
			return nil
		}
		out.WriteString(e.text[at:x.from])
		out.WriteString(x.text)
		at = x.to
	}
	out.WriteString(e.text[at:])
	return out.Bytes()
}

// diff records the edits that change the old node into the new one. key is the key of the node, or nil if the node is not a value
// in a map.
func (e *editor) diff(key, old, now *yaml.Node) {
	switch {
	case e.err != nil:
	case e.was[now] != old:
		e.replace(key, old, now)
	case old.Kind == yaml.ScalarNode:
		e.value(old, now)
	case old.Kind == yaml.SequenceNode:
		e.list(old, now)
	case len(old.Content) != len(now.Content):
		e.err = errPlace
	case old.Kind == yaml.MappingNode:
		for i := 0; i < len(old.Content); i += 2 {
			e.diff(nil, old.Content[i], now.Content[i])
			e.diff(old.Content[i], old.Content[i+1], now.Content[i+1])
		}
	default:
		for i := range old.Content {
			e.diff(nil, old.Content[i], now.Content[i])
		}
	}
}

// value changes a scalar and keeps its quotes.
func (e *editor) value(old, now *yaml.Node) {
	if old.Value == now.Value {
		return
	}
	from, to := e.find(old)
	at := strings.Index(e.text[from:to], old.Value)
	if at < 0 {
		e.err = errPlace
		return
	}
	e.put(from+at, from+at+len(old.Value), now.Value)
}

// list compares lists. A term in short form corresponds to one term per key.
func (e *editor) list(old, now *yaml.Node) {
	at := 0
	for _, item := range old.Content {
		run := 1
		short := item.Kind == yaml.MappingNode && len(item.Content) > 0 && strings.Contains(item.Content[0].Value, ".")
		if short {
			run = len(item.Content) / 2
		}
		switch {
		case at >= len(now.Content):
			e.err = errPlace
			return
		case e.was[now.Content[at]] == item || !short:
			e.diff(nil, item, now.Content[at])
			run = 1
		case at+run > len(now.Content):
			e.err = errPlace
			return
		default:
			e.terms(old, item, now.Content[at:at+run])
		}
		at += run
	}
	if at != len(now.Content) {
		e.err = errPlace
	}
}

// terms inserts "feature:" before each key of a term in short form, and "matchExpressions:" before its value.
func (e *editor) terms(list, old *yaml.Node, now []*yaml.Node) {
	block := old.Style&yaml.FlowStyle == 0
	first, _ := e.find(old.Content[0])
	dash := strings.LastIndexByte(e.text[:first], '-') // of the item in the block list
	if len(now) > 1 && (block && strings.Trim(e.text[max(dash, 0):first], "- ") != "" || !block && list.Style&yaml.FlowStyle == 0) {
		e.err = errPlace
		return
	}
	between := ", "
	if block {
		between = e.eol + strings.Repeat(" ", old.Column-1)
	}
	for i, term := range now {
		key, value := old.Content[2*i], old.Content[2*i+1]
		from, to := e.find(key)
		text := "feature: " + e.text[from:to]
		if i > 0 && !block {
			_, end := e.find(old.Content[2*i-1])
			e.insert(end, "}")
			text = "{" + text
		} else if i > 0 {
			width := first - dash
			if from < width || strings.Trim(e.text[from-width:from], " ") != "" {
				e.err = errPlace
				return
			}
			e.put(from-width, from-width+1, "-")
		}
		if len(term.Content) < 4 { // without expressions
			_, end := e.find(value)
			e.put(from, max(to, end), text)
			continue
		}
		e.put(from, to, text+between+"matchExpressions")
		e.diff(key, value, term.Content[3])
	}
}
