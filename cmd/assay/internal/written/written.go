// Package written returns what a Node has of the kinds that rules can set, and which clients own it.
package written

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Value returns the value of a key on a Node, in the form of outputs of rules. A nil Node has no keys.
func Value(node *corev1.Node, kind keys.Kind, key string) (value string, ok bool) {
	if node == nil {
		return "", false
	}
	value, ok = valuesOf(node, kind)[key]
	return value, ok
}

// valuesOf returns what a Node has of a kind, in the form of outputs of rules.
func valuesOf(node *corev1.Node, kind keys.Kind) map[string]string {
	out := map[string]string{}
	switch kind {
	case keys.Label:
		return node.Labels
	case keys.Annotation:
		return node.Annotations
	case keys.Condition:
		for _, c := range node.Status.Conditions {
			out[string(c.Type)] = plan.FormatCondition(c)
		}
	case keys.Taint:
		for _, t := range node.Spec.Taints {
			out[keys.TaintName(t)] = t.Value
		}
	case keys.Resource:
		for name, amount := range node.Status.Capacity {
			out[string(name)] = amount.String()
		}
	}
	return out
}

// Key is a key of a Node of a kind that rules can set, in the form of outputs of rules.
type Key struct {
	Kind       keys.Kind
	Key, Value string
}

// Keys returns the keys of a Node of the kinds that rules can set, in the order of the kinds, sorted. A nil Node has none.
func Keys(node *corev1.Node) (out []Key) {
	if node == nil {
		return nil
	}
	for _, kind := range keys.NodeKinds {
		values := valuesOf(node, kind)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			out = append(out, Key{kind, key, values[key]})
		}
	}
	return out
}

// Managers returns the clients that own a key of a Node according to managedFields. Taints are an atomic list: the clients own all of them.
func Managers(node *corev1.Node, kind keys.Kind, key string) []string {
	switch kind {
	case keys.Label:
		return managers(node.ManagedFields, "metadata", "labels", key)
	case keys.Annotation:
		return managers(node.ManagedFields, "metadata", "annotations", key)
	case keys.Taint:
		return managers(node.ManagedFields, "spec", "taints")
	case keys.Resource:
		return managers(node.ManagedFields, "status", "capacity", key)
	case keys.Condition:
		return managers(node.ManagedFields, "status", "conditions", fmt.Sprintf("k:{%q:%q}", "type", key))
	}
	return nil
}

// managers returns the clients that own a field. An element of the path that begins with k: is the key of an item of a list.
func managers(entries []metav1.ManagedFieldsEntry, path ...string) []string {
	var out []string
	for i := range entries {
		entry := &entries[i]
		var fields map[string]any
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		owns := true
		for _, name := range path {
			if !strings.HasPrefix(name, "k:") {
				name = "f:" + name
			}
			next, ok := fields[name].(map[string]any)
			if owns = ok; !ok {
				break
			}
			fields = next
		}
		if owns {
			out = append(out, entry.Manager)
		}
	}
	return out
}
