package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FromJSON returns a JSON object as a Document without positions. Of keys that are there twice the last one counts, as
// everywhere in Kubernetes.
func FromJSON(raw []byte) (*Document, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	root, err := node(d, 0)
	if err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	out := &Document{Root: root, file: &File{}, bad: map[*yaml.Node]bool{}}
	out.describe()
	return out, nil
}

func node(d *json.Decoder, depth int) (*yaml.Node, error) {
	if depth > MaxNesting {
		return nil, fmt.Errorf("nested deeper than %d levels", MaxNesting)
	}
	token, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return list(d, depth)
		}
		return object(d, depth)
	case string:
		return quoted(t), nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
}

func list(d *json.Decoder, depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for d.More() {
		item, err := node(d, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, item)
	}
	_, err := d.Token()
	return out, err
}

func object(d *json.Decoder, depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	at := map[string]int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		value, err := node(d, depth+1)
		if err != nil {
			return nil, err
		}
		if i, ok := at[key]; ok {
			out.Content[i] = value
			continue
		}
		at[key] = len(out.Content) + 1
		out.Content = append(out.Content, quoted(key), value)
	}
	_, err := d.Token()
	return out, err
}
