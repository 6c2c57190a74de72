// Package offline makes the inputs of rules for the nodes in files, or in one list of the API, as the controller makes them from its
// caches.
package offline

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// Policy is what inputs depend on in addition to objects: package gather describes it.
type Policy = gather.Policy

// Published is a NodeFeature: package gather describes it.
type Published = gather.Published

// Objects are what the inputs of rules depend on.
type Objects struct {
	// Nodes are the stored Nodes by name. nil: they are unknown, and every node that a NodeFeature names exists, with its name only.
	Nodes map[string]*corev1.Node
	// Published are the NodeFeatures. Each names its node.
	Published []Published
	// Slices are the ResourceSlices; nil: the devices of DRA drivers are unknown.
	Slices []resourcev1.ResourceSlice
	// Taints are the DeviceTaintRules.
	Taints []resourcev1.DeviceTaintRule
	// Namespaces are the labels of namespaces. They are read only with Policy.Namespaces.
	Namespaces map[string]map[string]string
}

// Fleet provides the inputs of rules. It is immutable and safe for concurrent use.
type Fleet struct {
	policy  Policy
	objects Objects
	names   []string
	counts  map[string]gather.Selection[Published] // by node
	devices map[string]*facts.Facts                // by node; nil: unknown
	left    []leftOut
	unread  []string // notes on nodes with sources that their workers have not read
}

// New returns the Fleet of objects.
func New(policy Policy, objects Objects) *Fleet {
	f := &Fleet{policy: policy, objects: objects, counts: map[string]gather.Selection[Published]{}}
	if objects.Slices != nil {
		f.devices = resourceslice.Facts(objects.Slices, objects.Taints, policy.CountsDriver)
	}
	naming := map[string][]Published{}
	for _, p := range objects.Published {
		naming[p.Node] = append(naming[p.Node], p)
	}
	if f.names = facts.SortedKeys(objects.Nodes); objects.Nodes == nil {
		f.names = facts.SortedKeys(naming)
	}
	for _, name := range f.names {
		nodefeature.Limit(policy.Namespace, name, naming[name])
		selected, _ := gather.Select(policy, f.node(name), f.namespaces, naming[name]) // namespaces returns no error
		for _, p := range selected.Left() {
			f.leave(p, p.Err.Error())
		}
		for _, p := range naming[name] {
			if why, _ := policy.Ignores(p, f.node(name), f.namespaces); why != "" {
				f.leave(p, why)
			}
		}
		f.counts[name] = selected
		for _, p := range selected.All() {
			if sources := p.Facts.Unread(); len(sources) > 0 && policy.Own(p) {
				f.unread = append(f.unread, fmt.Sprintf("node %s: %s: what depends on it is unknown, and the controller leaves it as it is",
					name, facts.WhyUnread(sources)))
			}
		}
	}
	return f
}

// leftOut is a NodeFeature that does not count, and why.
type leftOut struct{ namespace, name, why string }

func (f *Fleet) leave(p Published, why string) {
	f.left = append(f.left, leftOut{p.Namespace, p.Name, why})
}

// node returns the node that rules are evaluated for.
func (f *Fleet) node(name string) gather.Node {
	return gather.Node{Name: name, Object: f.objects.Nodes[name], Devices: f.devicesOf(name)}
}

// devicesOf returns the devices of a node; nil: they are unknown.
func (f *Fleet) devicesOf(node string) *facts.Facts {
	if found := f.devices[node]; found != nil || f.devices == nil {
		return found
	}
	return facts.FromPools(nil, nil, nodefeature.Interner())
}

// namespaces implements gather.Namespaces.
func (f *Fleet) namespaces(name string) (map[string]string, bool, error) {
	of, exists := f.objects.Namespaces[name]
	return of, exists, nil
}

// Names returns the names of the nodes, sorted.
func (f *Fleet) Names() []string { return f.names }

// Published returns the NodeFeatures that count for a node, in merge order.
func (f *Fleet) Published(node string) []Published { return f.counts[node].All() }

// All returns the NodeFeatures that count for a node.
func (f *Fleet) All() (out []Published) {
	for _, name := range f.names {
		out = append(out, f.Published(name)...)
	}
	return out
}

// Notes returns which NodeFeatures are left out, and what is unknown of nodes, and why.
func (f *Fleet) Notes() []string {
	var out []string
	for _, l := range f.left {
		out = append(out, fmt.Sprintf("NodeFeature %s/%s is left out: %s", l.namespace, l.name, l.why))
	}
	return append(out, f.unread...)
}

// LeftOut returns why a NodeFeature does not count; empty: it does, or its node is not in Names.
func (f *Fleet) LeftOut(p Published) string {
	i := slices.IndexFunc(f.left, func(l leftOut) bool { return l.namespace == p.Namespace && l.name == p.Name })
	if i < 0 {
		return ""
	}
	return f.left[i].why
}

// Input returns the input of rules for a node. Nothing is known of a node that is not in Names but its name.
func (f *Fleet) Input(node string) rules.Input {
	return f.counts[node].Input(f.node(node), nodefeature.Interner())
}

// Merged returns the input of rules for a node without what its Node says.
func (f *Fleet) Merged(node string) rules.Input {
	return f.counts[node].Input(gather.Node{Name: node, Devices: f.devicesOf(node)}, nodefeature.Interner())
}

// Local returns what the worker of this machine would publish.
func Local(policy Policy, node string, features *nfdv1alpha1.Features, labels map[string]string) Published {
	return Published{
		Namespace: policy.Namespace, Name: node, Node: node, Facts: facts.New(features, nodefeature.Interner()), Labels: labels,
	}
}
