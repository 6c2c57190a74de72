package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// nodeOf is what rules may know of a Node: its labels and annotations without those that rules have written.
func nodeOf(node *corev1.Node) rules.Node {
	var record plan.Record
	return rules.Node{
		Name:        node.Name,
		Labels:      foreign(node.Labels, record.Parse(node.Annotations[record.Labels()])),
		Annotations: foreign(node.Annotations, record.Parse(node.Annotations[record.Annotations()])),
	}
}

func foreign(all map[string]string, owned []string) map[string]string {
	out := make(map[string]string, len(all))
	for k, v := range all {
		out[k] = v
	}
	for _, k := range owned {
		delete(out, k)
	}
	return out
}
