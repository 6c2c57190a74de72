//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/rules/baseline"
)

// Labels of the levels of the tree of all nodes.
const (
	blockLabel = "example.com/block"
	rackLabel  = "example.com/rack"
	// rackNodes is the number of nodes of a rack, and rackNodes*blockRacks that of a block.
	rackNodes  = 10
	blockRacks = 2
)

// scaleLevels is the baseline of the tree of all nodes.
const scaleLevels = `
metadata: {name: levels}
spec:
  levels:
  - {name: block, label: example.com/block}
  - {name: rack, label: example.com/rack, nodes: {max: 10}}
  - {name: host, label: kubernetes.io/hostname}
`

// placeOf returns the labels of the levels of a node.
func placeOf(number int, name string) map[string]string {
	rack := number / rackNodes
	return map[string]string{blockLabel: fmt.Sprint("b", rack/blockRacks), rackLabel: fmt.Sprint("r", rack), corev1.LabelHostname: name}
}

// misplaced is a node that breaks the tree: its labels, null for one that it lacks, and what the status must say.
type misplaced struct {
	number  int // negative: from the end
	labels  map[string]any
	message string
}

// misplacedNodes are seven nodes of four kinds: two that lack a level, two that contradict the others of their rack, two of a rack without a
// majority, and the youngest of a rack that is too large.
var misplacedNodes = []misplaced{
	{11, map[string]any{blockLabel: nil}, blockLabel + " is missing"},
	{12, map[string]any{rackLabel: ""}, rackLabel + " is missing"},
	{21, map[string]any{blockLabel: "b0"}, "rack r2 is in block b1 for 8 of 10 nodes, here in b0"},
	{22, map[string]any{blockLabel: "b0"}, "rack r2 is in block b1 for 8 of 10 nodes, here in b0"},
	{31, map[string]any{blockLabel: "b0", rackLabel: "torn"}, "rack torn is in block b0 for 1 node, block b1 for 1 node, and no majority of its 2 nodes is in one of them"},
	{32, map[string]any{rackLabel: "torn"}, "rack torn is in block b0 for 1 node, block b1 for 1 node, and no majority of its 2 nodes is in one of them"},
	{-1, map[string]any{blockLabel: "b0", rackLabel: "r0"}, "rack r0 has 11 nodes, at most 10"},
}

// misplace gives the nodes that break the tree their labels, or those that they had before, and returns what the status must say.
func (s *scale) misplace(ctx context.Context, repair bool) (map[string]string, error) {
	want := map[string]string{}
	for _, m := range misplacedNodes {
		n := s.nodes[(m.number+len(s.nodes))%len(s.nodes)]
		labels := m.labels
		if repair {
			labels = map[string]any{}
			for key, value := range placeOf(n.Number, n.Name) {
				labels[key] = value
			}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return nil, err
		}
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if err := s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return nil, err
		}
		want[n.Name+" "+baseline.LevelsCheck] = m.message
	}
	return want, nil
}
