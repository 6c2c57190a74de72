package fix

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// replace replaces an old node by a new one.
func (e *editor) replace(key, old, now *yaml.Node) {
	block := old.Style&yaml.FlowStyle == 0
	switch {
	case old.Kind == yaml.ScalarNode:
		from, to := e.find(old)
		text := e.flow(now)
		if from > 0 && from == to && e.text[from-1] == ':' {
			text = " " + text
		}
		e.put(from, to, text)
	case old.Kind == yaml.MappingNode && block: // a rule with matchOn
		from, to := e.find(old)
		e.put(from, to, e.block(now, old.Column))
	case old.Kind != yaml.SequenceNode || now.Kind != yaml.MappingNode:
		e.err = errPlace
	case now.Style&yaml.FlowStyle == 0 && block: // a list of names
		e.names(key, old, now)
	case now.Style&yaml.FlowStyle == 0 || len(now.Content) < 4:
		from, to := e.find(old)
		e.put(from, to, e.flow(now))
	case !block: // a list of values
		from, to := e.find(old)
		e.insert(from, "{op: In, value: ")
		e.items(old, now.Content[3])
		e.insert(to, "}")
	default:
		e.values(key, old, now)
	}
}

func (e *editor) items(old, now *yaml.Node) {
	if len(old.Content) != len(now.Content) {
		e.err = errPlace
		return
	}
	for i := range old.Content {
		e.diff(nil, old.Content[i], now.Content[i])
	}
}

// compact reports whether the dashes of a block list are in the column of its key.
func compact(key, list *yaml.Node) bool { return key != nil && list.Column <= key.Column }

// names converts each item of a block list, "- AVX", to a field, "AVX: {op: Exists}".
func (e *editor) names(key, old, now *yaml.Node) {
	indent := ""
	if compact(key, old) {
		indent = "  "
	}
	if 2*len(old.Content) != len(now.Content) {
		e.err = errPlace
		return
	}
	for i, item := range old.Content {
		from, to := e.find(item)
		dash := strings.LastIndexByte(e.text[:from], '-')
		if dash < 0 || strings.Trim(e.text[dash:from], "- ") != "" {
			e.err = errPlace
			return
		}
		pair := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle, Content: now.Content[2*i : 2*i+2]}
		text := e.flow(pair)
		e.put(dash, to, indent+strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"))
	}
}

// values converts a block list of values to the values of an operator, on one line unless comments separate them.
func (e *editor) values(key, old, now *yaml.Node) {
	from, to := e.find(old)
	if e.err != nil {
		return
	}
	before := strings.TrimRight(e.text[:from], " \t\r\n")
	if strings.HasSuffix(before, ":") && !comment.MatchString(e.text[from:to]) {
		e.put(len(before), to, " "+e.flow(now))
		return
	}
	indent := ""
	if compact(key, old) {
		indent = "  "
		for _, at := range e.lines {
			if at > from && at < to && strings.TrimSpace(e.text[at:to]) != "" {
				e.insert(at, indent)
			}
		}
	}
	next := e.eol + strings.Repeat(" ", old.Column-1) + indent
	e.insert(from, indent+"op: In"+next+"value:"+next)
	e.items(old, now.Content[3])
}

// flow formats a node on one line.
func (e *editor) flow(n *yaml.Node) string {
	bare := plain(n)
	if bare.Kind != yaml.ScalarNode {
		bare.Style = yaml.FlowStyle
	}
	text, err := encode(bare)
	if err != nil || strings.Contains(text, "\n") {
		e.err = errPlace
	}
	return text
}

// block formats a node on several lines; all but the first are indented to the given column.
func (e *editor) block(n *yaml.Node, column int) string {
	bare := *n
	bare.HeadComment, bare.LineComment, bare.FootComment = "", "", ""
	text, err := encode(&bare)
	if err != nil {
		e.err = err
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		if i > 0 && lines[i] != "" {
			lines[i] = strings.Repeat(" ", column-1) + lines[i]
		}
	}
	return strings.Join(lines, e.eol)
}

// plain copies a node without its comments.
func plain(n *yaml.Node) *yaml.Node {
	out := *n
	out.HeadComment, out.LineComment, out.FootComment, out.Content = "", "", "", nil
	for _, c := range n.Content {
		out.Content = append(out.Content, plain(c))
	}
	return &out
}

func encode(n *yaml.Node) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return "", err
	}
	err := e.Close()
	return strings.TrimSuffix(b.String(), "\n"), err
}
