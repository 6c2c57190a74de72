package offline

import (
	"slices"

	"github.com/assay-project/assay/rules/baseline"
)

// Baseline returns what a baseline says about the nodes, as the controller does. What only the controller sees, such as a worker that has
// just stopped, is missing, unless the condition FeaturesReady of the Node reports it.
func (f *Fleet) Baseline(b *baseline.Baseline) *baseline.Result {
	return b.Fleet(f.BaselineNodes(b.ReadsDevices()))
}

// BaselineNodes returns all nodes as baselines read them. Devices is set if the devices of DRA drivers matter: a node whose devices are not
// known is then unknown.
func (f *Fleet) BaselineNodes(devices bool) []baseline.Node {
	out := make([]baseline.Node, 0, len(f.names))
	for _, name := range f.names {
		out = append(out, baseline.NodeOf(f.Input(name), baseline.Evidence{
			Object: f.objects.Nodes[name], Devices: f.devicesOf(name),
			Published: slices.ContainsFunc(f.Published(name), func(p Published) bool { return p.Namespace == "" || f.policy.Own(p) }),
		}, devices))
	}
	return out
}
