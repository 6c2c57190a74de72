package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
)

// nodeOf returns what rules may read of a Node: its labels and annotations, except for those that Assay has written.
func nodeOf(node *corev1.Node) rules.Node { return nodefeature.Gather{}.Node(node) }
