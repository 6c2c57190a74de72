package yamltree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON returns the JSON of a tree without aliases. Dates stay strings, as in Kubernetes.
func JSON(n *yaml.Node) []byte { return appendJSON(nil, n) }

func appendJSON(out []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.DocumentNode:
		return appendJSON(out, n.Content[0])
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, c := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, c)
		}
		return append(out, ']')
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendString(out, n.Content[i].Value)
			out = append(out, ':')
			out = appendJSON(out, n.Content[i+1])
		}
		return append(out, '}')
	}
	return appendScalar(out, n)
}

func appendScalar(out []byte, n *yaml.Node) []byte {
	switch n.ShortTag() {
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return strconv.AppendBool(out, b)
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return strconv.AppendInt(out, i, 10)
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			if number, err := json.Marshal(f); err == nil { // JSON has no .inf and .nan
				return append(out, number...)
			}
		}
	}
	return appendString(out, n.Value)
}

// appendString uses encoding/json only if the string needs escapes.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b == '"' || b == '\\' || b >= 0x7f {
			var escaped bytes.Buffer
			e := json.NewEncoder(&escaped)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // encoding a string cannot fail
			return append(out, bytes.TrimRight(escaped.Bytes(), "\n")...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// FromJSON returns the tree of a JSON value, without positions. Of duplicate keys, the last one wins, as in Kubernetes.
func FromJSON(raw []byte, options Options) (*yaml.Node, error) {
	r := jsonReader{json.NewDecoder(bytes.NewReader(raw)), options.Depth}
	r.UseNumber()
	root, err := r.node(0)
	if err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	return root, nil
}

type jsonReader struct {
	*json.Decoder
	depth int
}

func (r *jsonReader) node(depth int) (*yaml.Node, error) {
	if r.depth > 0 && depth > r.depth {
		return nil, fmt.Errorf("nested deeper than %d levels", r.depth)
	}
	token, err := r.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return r.list(depth)
		}
		return r.object(depth)
	case string:
		return Quoted(t), nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// Quoted returns a node for a string in double quotes.
func Quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
}

func (r *jsonReader) list(depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for r.More() {
		item, err := r.node(depth + 1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, item)
	}
	_, err := r.Token()
	return out, err
}

func (r *jsonReader) object(depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	at := map[string]int{}
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		value, err := r.node(depth + 1)
		if err != nil {
			return nil, err
		}
		if i, ok := at[key]; ok {
			out.Content[i] = value
			continue
		}
		at[key] = len(out.Content) + 1
		out.Content = append(out.Content, Quoted(key), value)
	}
	_, err := r.Token()
	return out, err
}
