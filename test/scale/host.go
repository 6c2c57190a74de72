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

// ownFeature holds the attribute that phases change. It belongs to no source, and is therefore in no set that nodes happen to
// share.
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

// content returns what the worker of a node publishes. Hosts of one kind differ in their name, in their virtual interfaces and in
// the attribute value of ownFeature; the other features are shared maps.
func (h hosts) content(n fleet.Node, value string) publish.Content {
	machine := n.Number
	if h.shapes > 0 {
		machine %= h.shapes // machines of one instance type are of one kind
	}
	kind := h.kinds[machine%len(h.kinds)]
	f := nfdv1alpha1.Features{Flags: kind.Flags, Attributes: maps.Clone(kind.Attributes), Instances: maps.Clone(kind.Instances)}
	f.Attributes["system.name"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"nodename": n.Name}}
	f.Attributes[ownFeature] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"value": value}}
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
