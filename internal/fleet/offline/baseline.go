package offline

import (
	"slices"

	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
)

// Baseline returns what a baseline says about the nodes, as the controller does. What only the controller sees, such as a worker that has
// just stopped, is missing, unless the condition FeaturesReady of the Node reports it.
func (f *Fleet) Baseline(b *baseline.Baseline) *baseline.Result {
	return b.Fleet(f.BaselineNodes(slices.ContainsFunc(b.Reads(), facts.IsDevices)))
}

// BaselineNodes returns all nodes as baselines read them. Devices is set if the devices of DRA drivers matter: a node whose devices are not
// known is then unknown.
func (f *Fleet) BaselineNodes(devices bool) []baseline.Node {
	out := make([]baseline.Node, 0, len(f.names))
	for _, name := range f.names {
		n := baseline.Node{Input: f.Input(name)}
		n.Unpublished = !slices.ContainsFunc(f.Published(name), func(p Published) bool { return p.Namespace == "" || f.policy.Own(p) })
		n.Unknown = devices && !complete(f.devicesOf(name))
		if node := f.objects.Nodes[name]; node != nil {
			n.Unknown = n.Unknown || baseline.Outdated(n.Input.Worker, node)
		}
		out = append(out, n)
	}
	return out
}

// complete reports whether all devices of a node are known.
func complete(devices *facts.Facts) bool {
	if devices == nil {
		return false
	}
	drivers := devices.Feature(facts.DriverFeature)
	for i := range drivers.Instances.Len() {
		if value, _ := drivers.Instances.Get(i, "complete"); value != "true" {
			return false
		}
	}
	return true
}
