//go:build linux

package main

import (
	"fmt"
	"maps"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/test/bench"
	"github.com/assay-project/assay/test/scale/fleet"
)

// kinds are the kinds of machines in the fleet, in equal parts.
var kinds = []string{"node-0", "node-1", "node-4"}

// ownFeature holds the attribute that phases change, and others that no two hosts have in common. It belongs to no source, and is therefore in
// no set that nodes happen to share.
const ownFeature = "scale.own"

// hosts generates what workers discover.
type hosts struct {
	kinds []nfdv1alpha1.Features
	// shapes is the number of instance types; 0: hosts have none.
	shapes int
}

func newHosts(shapes int) (hosts, error) {
	out := hosts{shapes: shapes}
	for _, kind := range kinds {
		var object nfdv1alpha1.NodeFeature
		if err := bench.Decode(kind, &object); err != nil {
			return hosts{}, fmt.Errorf("decode %s: %w", kind, err)
		}
		out.kinds = append(out.kinds, object.Spec.Features)
	}
	return out, nil
}

// mixed are features of other kinds that hosts have in some combination, so that different rules match. They are too small to be in a set that
// nodes share.
var mixed = []string{"system.dmiid", "memory.numa", "memory.hugepages", "cpu.topology", "cpu.model", "kernel.version"}

// ownElements is the number of elements of ownFeature that no two hosts have in common, and of labels that show them.
const ownElements = 20

// ownElement returns the name of such an element.
func ownElement(i int) string { return fmt.Sprintf("part%d", i) }

// content returns what the worker of a node publishes. The contents of all hosts differ: in their name, their virtual interfaces, the
// elements of ownFeature, and the kinds from which they have the mixed features. Equal hosts would hide what a controller remembers of each.
// The other features are shared maps. Hosts of one instance type have the same kind and the same mixed features.
func (h hosts) content(n fleet.Node, value string) publish.Content {
	machine := n.Number
	if h.shapes > 0 {
		machine %= h.shapes
	}
	kind := h.kinds[machine%len(h.kinds)]
	f := nfdv1alpha1.Features{Flags: kind.Flags, Attributes: maps.Clone(kind.Attributes), Instances: maps.Clone(kind.Instances)}
	for rest, i := machine, 0; i < len(mixed); i++ {
		rest /= len(h.kinds)
		f.Attributes[mixed[i]] = h.kinds[rest%len(h.kinds)].Attributes[mixed[i]]
	}
	f.Attributes["system.name"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"nodename": n.Name}}
	own := map[string]string{"value": value}
	for i := range ownElements {
		own[ownElement(i)] = fmt.Sprintf("%s-%08x", n.Name, uint32((n.Number+1)*(i+1))*2654435761) // numbers that look random
	}
	f.Attributes[ownFeature] = nfdv1alpha1.AttributeFeatureSet{Elements: own}
	if h.shapes > 0 { // only nodes with the condition FeaturesReady have a shape, and it is about a boot
		f.Attributes["system.boot"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"id": n.Name}}
	}
	virtual := make([]nfdv1alpha1.InstanceFeature, len(kind.Instances["network.virtual"].Elements))
	for i, instance := range kind.Instances["network.virtual"].Elements {
		virtual[i].Attributes = maps.Clone(instance.Attributes)
		virtual[i].Attributes["name"] = fmt.Sprintf("veth%x-%x", n.Number, i)
	}
	f.Instances["network.virtual"] = nfdv1alpha1.InstanceFeatureSet{Elements: virtual}
	return publish.Content{Features: f}
}
