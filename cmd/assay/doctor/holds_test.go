package doctor

import (
	"slices"
	"testing"
)

// TestNodesWithImportantKeysComeFirst: of more Nodes than doctor lists, those with a late name were left out, also if one lacks a taint.
func TestNodesWithImportantKeysComeFirst(t *testing.T) {
	list := []heldNode{{node: "a", key: "label feature.node.kubernetes.io/cpu-cpuid.AVX"}, {node: "b", key: "label example.com/a"}, {node: "z", key: "taint example.com/b:NoSchedule"}}
	slices.SortFunc(list, compareHeld)
	if list[0].node != "z" || list[1].node != "b" {
		t.Errorf("%v", list)
	}
}
