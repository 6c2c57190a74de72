// Package written compares the outputs of rules for a node with its Node object.
package written

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Differs returns how a Node differs from an output of rules, or "" if it has it. It does not check a nil Node.
func Differs(node *corev1.Node, withholding rules.Withholding, kind keys.Kind, key, value string) string {
	if why := withholding.Withholds(kind); why != "" {
		return "not written on nodes: " + why
	}
	if node == nil {
		return ""
	}
	switch has, ok := Value(node, kind, key); {
	case !ok:
		return "the Node does not have it"
	case !Equal(kind, has, value):
		return "the Node has " + has + " instead"
	}
	return ""
}

// Value returns the value of a key on a Node, in the form of outputs of rules. A nil Node has no keys.
func Value(node *corev1.Node, kind keys.Kind, key string) (value string, ok bool) {
	if node == nil {
		return "", false
	}
	value, ok = valuesOf(node, kind)[key]
	return value, ok
}

// Equal reports whether two values of a kind are equal.
func Equal(kind keys.Kind, a, b string) bool {
	return a == b || kind == keys.Resource && sameAmount(a, b)
}

// sameAmount compares quantities: the API server stores 1000 as 1k.
func sameAmount(a, b string) bool {
	x, err := resource.ParseQuantity(a)
	y, err2 := resource.ParseQuantity(b)
	return err == nil && err2 == nil && x.Cmp(y) == 0
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
		return Conditions(node)
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

// Conditions returns the conditions of a Node by type, in the form of outputs of rules.
func Conditions(node *corev1.Node) map[string]string {
	out := make(map[string]string, len(node.Status.Conditions))
	for _, c := range node.Status.Conditions {
		out[string(c.Type)] = plan.FormatCondition(c)
	}
	return out
}

// ConditionPath is the path of a condition in managedFields.
func ConditionPath(kind string) []string {
	return []string{"status", "conditions", fmt.Sprintf("k:{%q:%q}", "type", kind)}
}

// Managers returns the clients that own a field according to managedFields. An element of the path that begins with k: is the key of an
// item of a list.
func Managers(entries []metav1.ManagedFieldsEntry, path ...string) []string {
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
