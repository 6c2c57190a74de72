// Package written compares the outputs of rules for a node with its Node object.
package written

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Differs returns the reason why a Node does not have an output of rules, or "" if it has it. It does not check taints and extended
// resources, or a nil Node.
func Differs(node *corev1.Node, withholding rules.Withholding, kind keys.Kind, key, value string) string {
	if why := withholding.Withholds(kind); why != "" {
		return "not written on nodes: " + why
	}
	if node == nil || kind == keys.Taint || kind == keys.Resource {
		return ""
	}
	values := map[keys.Kind]map[string]string{keys.Label: node.Labels, keys.Annotation: node.Annotations, keys.Condition: Conditions(node)}[kind]
	switch has, ok := values[key]; {
	case !ok:
		return "the Node does not have it yet: is the controller running?"
	case has != value:
		return "the Node has " + has + " instead"
	}
	return ""
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
