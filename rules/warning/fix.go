package warning

import (
	"encoding/json"
)

// Fix is a change of a rule that a warning proposes. The message of the warning is derived from it, so that they agree.
type Fix struct {
	// Same is set if the changed rule means the same wherever the original has a meaning. Otherwise, it is what the author probably
	// means.
	Same bool
	// Rule is the path of the rule, and Edits the changes of it, in order.
	Rule  string
	Edits []Edit
}

// Edit sets a value of a rule, or removes it.
type Edit struct {
	// Path are the names of fields, keys of maps and indexes (int) of lists that lead from the rule to the value.
	Path []any
	// Value replaces the value: a string, or anything that has the JSON of the field. Nil removes it.
	Value any
	// Name gives a key of a map another name; its value remains.
	Name string
}

// Apply returns a rule with the changes. It returns false if they do not apply to the rule, for example because it has changed.
func Apply[T any](rule *T, f *Fix) (*T, bool) {
	var tree any
	if !convert(rule, &tree) {
		return nil, false
	}
	for _, e := range f.Edits {
		var value any
		if e.Value != nil && !convert(e.Value, &value) || !e.apply(tree, value) {
			return nil, false
		}
	}
	out := new(T)
	return out, convert(tree, out)
}

// apply changes a tree of JSON values.
func (e *Edit) apply(tree, value any) bool {
	for i, step := range e.Path {
		last := i == len(e.Path)-1
		switch step := step.(type) {
		case string:
			m, ok := tree.(map[string]any)
			if _, has := m[step]; !ok || !has && (!last || value == nil) {
				return false
			}
			switch {
			case last && e.Name != "":
				m[e.Name] = m[step]
				delete(m, step)
			case last && value == nil:
				delete(m, step)
			case last:
				m[step] = value
			}
			tree = m[step]
		case int:
			l, ok := tree.([]any)
			if !ok || step >= len(l) || last && value == nil {
				return false
			}
			if last {
				l[step] = value
			}
			tree = l[step]
		}
	}
	return true
}

// convert converts a value by its JSON.
func convert(from, to any) bool {
	data, err := json.Marshal(from)
	return err == nil && json.Unmarshal(data, to) == nil
}
