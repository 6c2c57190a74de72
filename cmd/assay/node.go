package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
)

// nodeOf is what rules are given of a Node: its labels and annotations, but for those that Assay has written itself.
func nodeOf(node *corev1.Node) rules.Node { return nodefeature.Gather{}.Node(node) }
