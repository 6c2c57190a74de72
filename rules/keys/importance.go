package keys

import (
	"cmp"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Ranks of labels, the most important one first.
const (
	rankRequest = iota // of a NodeFeatureRequest: pods refer to it
	rankRule           // of a rule
	rankDevice         // of a worker's source of devices
	rankSystem         // of another source of a worker
	rankFlag           // a flag of the processor, of which a node has about a hundred
)

// rankOfSource are the ranks of the labels that a worker gives, by source: they have names such as SOURCE-FEATURE.
var rankOfSource = map[string]int{
	"cpu": rankSystem, "kernel": rankSystem, "memory": rankSystem, "system": rankSystem,
	"cdi": rankDevice, "crypto": rankDevice, "gpu": rankDevice, "network": rankDevice,
	"pci": rankDevice, "rdma": rankDevice, "storage": rankDevice, "usb": rankDevice,
}

// RanksSource reports whether the labels of a source of the worker have a rank.
func RanksSource(name string) bool {
	_, ok := rankOfSource[name]
	return ok
}

// CompareLabels sorts labels by their importance, then by name: a list that has a limit keeps those that matter.
func CompareLabels(a, b string) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b)) }

// CompareImportance compares keys of any kinds by their importance: pods do not run without the taint or resource that they expect, and
// nothing in Kubernetes selects annotations.
func CompareImportance(a Kind, keyA string, b Kind, keyB string) int {
	return importance(a, keyA) - importance(b, keyB)
}

func importance(kind Kind, key string) int {
	switch kind {
	case Label:
		return 1 + rank(key)
	case Annotation:
		return 1 + rankFlag
	default:
		return 0
	}
}

func rank(label string) int {
	namespace, name, _ := strings.Cut(label, "/")
	source, _, _ := strings.Cut(name, "-")
	switch {
	case namespace == assayv1alpha1.RequestLabelNamespace:
		return rankRequest
	case namespace != nfdv1alpha1.FeatureLabelNamespace:
		return rankRule
	case strings.HasPrefix(name, "cpu-cpuid."):
		return rankFlag
	case rankOfSource[source] != 0:
		return rankOfSource[source]
	}
	return rankRule
}
