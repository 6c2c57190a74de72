// Package topology computes the NodeResourceTopology of a node: which CPUs, memory, huge pages and devices each NUMA node has, and which
// of them no pod holds.
//
// It is pure: sysfs, the kubelet's answers and the kubelet's settings become an object that is the same, byte by byte, whenever its
// content is the same. It never contains a time.
package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/podres"
)

// Names of attributes that schedulers read.
const (
	AttributePolicy            = "topologyManagerPolicy"
	AttributeScope             = "topologyManagerScope"
	AttributeMaxNodes          = "topologyManagerMaxNUMANodes"
	AttributeClosest           = "topologyManagerOptionPreferClosestNumaNodes"
	AttributeFingerprint       = "nodeTopologyPodsFingerprint"
	AttributeFingerprintMethod = "nodeTopologyPodsFingerprintMethod"
)

// Input is what a topology is computed from.
type Input struct {
	Node        string
	Machine     *Machine
	Kubelet     *Kubelet
	Allocatable *podres.Allocatable
	Pods        []podres.Pod
	Excludes    Excludes
	// NoFingerprint leaves the fingerprint out.
	NoFingerprint bool
}

// Result is the topology of a node, and what it does not show.
type Result struct {
	Content
	// Unknown are devices that pods hold and the kubelet does not list as allocatable: the two answers are of different times, or the
	// device is unhealthy. Sorted, as resource/id.
	Unknown []string
	// Claims are the devices of dynamic resource claims. The kubelet lists them without a NUMA node, so that no zone has them. Sorted.
	Claims []string
	// Negative is the number of resources of which pods hold more than is allocatable.
	Negative int
}

// Content is what Assay publishes in a NodeResourceTopology.
type Content struct {
	TopologyPolicies []string             `json:"topologyPolicies"`
	Zones            []v1alpha2.Zone      `json:"zones"`
	Attributes       []v1alpha2.Attribute `json:"attributes"`
}

// Build computes the topology.
func Build(in *Input) *Result {
	b := builder{Input: in, patterns: in.Excludes.of(in.Node), result: &Result{}}
	b.hold()
	for i := range in.Machine.Nodes {
		b.zone(&in.Machine.Nodes[i])
	}
	b.result.TopologyPolicies = []string{in.Kubelet.policyWord()}
	b.attributes()
	b.notes()
	return b.result
}

// builder is the state of one Build.
type builder struct {
	*Input
	patterns []string
	result   *Result

	cpus, taken map[int64]bool               // allocatable and held CPUs
	devices     map[string]map[string]device // by resource and id
	blocks      map[string]*blocks           // by type of memory
}

// device is an allocatable device, and the NUMA nodes that it is near to, some of them twice.
type device struct {
	nodes []int64
	held  bool
}

// blocks are the memory of one type by NUMA node.
type blocks struct{ allocatable, held map[int]int64 }

// hold joins what is allocatable with what pods hold. CPUs and devices are sets: the kubelet lists a device of two NUMA nodes twice, and
// CPUs of a pod with its containers again.
func (b *builder) hold() {
	b.cpus, b.taken = set(b.Allocatable.CPUs), map[int64]bool{}
	b.devices = map[string]map[string]device{}
	for _, d := range b.Allocatable.Devices {
		if b.devices[d.Resource] == nil {
			b.devices[d.Resource] = map[string]device{}
		}
		for _, id := range d.IDs {
			one := b.devices[d.Resource][id]
			one.nodes = slices.Concat(one.nodes, d.Topology)
			b.devices[d.Resource][id] = one
		}
	}
	unknown := map[string]bool{}
	for i := range b.Pods {
		p := &b.Pods[i]
		b.takeCPUs(p.CPUs)
		for c := range p.Containers {
			b.takeCPUs(p.Containers[c].CPUs)
			for _, d := range p.Containers[c].Devices {
				for _, id := range d.IDs {
					one, ok := b.devices[d.Resource][id]
					if !ok {
						unknown[d.Resource+"/"+id] = true
						continue
					}
					one.held = true
					b.devices[d.Resource][id] = one
				}
			}
		}
	}
	b.result.Unknown = slices.Sorted(maps.Keys(unknown))
	b.memory()
}

func (b *builder) takeCPUs(ids []int64) {
	for _, id := range ids {
		b.taken[id] = true
	}
}

// memory computes the memory of each NUMA node that is allocatable, and what pods hold of it. A block of several NUMA nodes fills them in
// ascending order, as the kubelet's memory manager does, after all blocks of a single one.
func (b *builder) memory() {
	b.blocks = map[string]*blocks{}
	for _, a := range collect(b.Allocatable.Memory) {
		one := b.blocks[a.kind]
		if one == nil {
			one = &blocks{allocatable: map[int]int64{}, held: map[int]int64{}}
			b.blocks[a.kind] = one
		}
		spread(a, one.allocatable, func(id int) int64 { return b.capacity(id, a.kind) })
	}
	var held []podres.Memory
	for i := range b.Pods {
		held = append(held, heldBy(&b.Pods[i])...)
	}
	for _, block := range collect(held) {
		if one := b.blocks[block.kind]; one != nil {
			spread(block, one.held, func(id int) int64 { return one.allocatable[id] })
		}
	}
}

// heldBy returns the blocks of a pod. Blocks of the pod as a whole include those of its containers: of each type and set of NUMA nodes the
// larger sum counts.
//
// Kubernetes 1.36 lists no resources of the pod as a whole. There, containers that share those of the pod (KEP-5526, alpha) have the same
// CPUs and the same blocks, which count once.
func heldBy(p *podres.Pod) []podres.Memory {
	var inside []podres.Memory
	shared := map[string]bool{}
	for i := range p.Containers {
		c := &p.Containers[i]
		if len(c.CPUs) > 0 && len(c.Memory) > 0 {
			key := fmt.Sprint(slices.Sorted(slices.Values(c.CPUs)), collect(c.Memory))
			if shared[key] {
				continue
			}
			shared[key] = true
		}
		inside = append(inside, c.Memory...)
	}
	if len(p.Memory) == 0 {
		return inside
	}
	sums := map[string]block{}
	for _, list := range [][]podres.Memory{inside, p.Memory} {
		for _, one := range collect(list) {
			if one.bytes > sums[one.key()].bytes {
				sums[one.key()] = one
			}
		}
	}
	var out []podres.Memory
	for _, one := range sums {
		m := podres.Memory{Type: one.kind, Bytes: uint64(one.bytes)}
		for _, id := range one.nodes {
			m.Topology = append(m.Topology, int64(id))
		}
		out = append(out, m)
	}
	return out
}

// block is memory of one type in a set of NUMA nodes.
type block struct {
	kind  string
	nodes []int // sorted
	bytes int64
}

func (o *block) key() string { return fmt.Sprint(o.kind, o.nodes) }

// collect adds up blocks of the same type and NUMA nodes, those of few NUMA nodes first. Blocks of none are left out.
func collect(list []podres.Memory) []block {
	sums := map[string]*block{}
	for _, m := range list {
		one := block{kind: m.Type}
		for _, id := range m.Topology {
			if id >= 0 {
				one.nodes = append(one.nodes, int(id))
			}
		}
		if len(one.nodes) == 0 {
			continue
		}
		slices.Sort(one.nodes)
		one.nodes = slices.Compact(one.nodes)
		key := one.key()
		if sums[key] == nil {
			sums[key] = &one
		}
		sums[key].bytes += int64(min(m.Bytes, maxBytes))
		sums[key].bytes = min(sums[key].bytes, maxBytes)
	}
	var out []block
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, *sums[key])
	}
	slices.SortStableFunc(out, func(a, b block) int { return cmp.Compare(len(a.nodes), len(b.nodes)) })
	return out
}

// maxBytes is the maximum amount of memory: sums of two never overflow.
const maxBytes = 1 << 61

// spread adds a block to NUMA nodes in ascending order, to each up to its limit, and what exceeds all limits to the last one.
func spread(one block, to map[int]int64, limit func(id int) int64) {
	rest := one.bytes
	for i, id := range one.nodes {
		part := rest
		if i < len(one.nodes)-1 {
			part = max(0, min(rest, limit(id)-to[id]))
		}
		to[id] = min(to[id]+part, maxBytes)
		rest -= part
	}
}

// capacity returns what a NUMA node has, or 0 if that is unknown.
func (b *builder) capacity(id int, kind string) int64 {
	for i := range b.Machine.Nodes {
		if b.Machine.Nodes[i].ID == id {
			return b.Machine.Nodes[i].Bytes[kind]
		}
	}
	return 0
}

// zone adds a NUMA node.
func (b *builder) zone(n *Node) {
	z := v1alpha2.Zone{Name: zoneName(n.ID), Type: v1alpha2.ZoneTypeNode}
	for id, distance := range n.Distances {
		z.Costs = append(z.Costs, v1alpha2.Cost{Name: zoneName(id), Value: distance})
	}
	slices.SortFunc(z.Costs, func(a, b v1alpha2.Cost) int { return cmp.Compare(a.Name, b.Name) })

	add := func(name string, capacity, allocatable, held int64) {
		if excluded(b.patterns, name) {
			return
		}
		if held > allocatable {
			b.result.Negative++
			held = allocatable
		}
		z.Resources = append(z.Resources, v1alpha2.Resource{
			Name: name, Capacity: quantity(capacity), Allocatable: quantity(allocatable), Available: quantity(allocatable - held),
		})
	}
	cpus, taken := int64(0), int64(0)
	for id := range n.CPUs {
		if b.cpus[id] {
			cpus++
			if b.taken[id] {
				taken++
			}
		}
	}
	add("cpu", int64(len(n.CPUs)), cpus, taken)
	for kind, one := range b.blocks {
		allocatable, ok := one.allocatable[n.ID]
		if !ok {
			continue
		}
		capacity, known := n.Bytes[kind]
		if !known {
			capacity = allocatable
		}
		add(kind, capacity, allocatable, one.held[n.ID])
	}
	for name, devices := range b.devices {
		total, held := int64(0), int64(0)
		for _, d := range devices {
			if slices.Contains(d.nodes, int64(n.ID)) {
				total++
				if d.held {
					held++
				}
			}
		}
		if total > 0 {
			add(name, total, total, held)
		}
	}
	slices.SortFunc(z.Resources, func(a, b v1alpha2.Resource) int { return cmp.Compare(a.Name, b.Name) })
	b.result.Zones = append(b.result.Zones, z)
}

func zoneName(id int) string { return "node-" + strconv.Itoa(id) }

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// attributes adds the attributes, sorted by name.
func (b *builder) attributes() {
	all := maps.Clone(b.Machine.Classes)
	if all == nil {
		all = map[string]string{}
	}
	all[AttributePolicy], all[AttributeScope] = b.Kubelet.TopologyManagerPolicy, b.Kubelet.TopologyManagerScope
	if n, ok := b.Kubelet.TopologyManagerPolicyOptions[optionMaxNodes]; ok {
		all[AttributeMaxNodes] = n
	}
	if on, ok := b.Kubelet.TopologyManagerPolicyOptions[optionClosest]; ok {
		all[AttributeClosest] = on
	}
	if !b.NoFingerprint {
		all[AttributeFingerprint], all[AttributeFingerprintMethod] = b.fingerprint()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.result.Attributes = append(b.result.Attributes, v1alpha2.Attribute{Name: name, Value: all[name]})
	}
}

// fingerprint returns the fingerprint and its method. That of pods with exclusive resources is only the same as a scheduler's if the
// kubelet lists the CPUs and the memory of all of them.
func (b *builder) fingerprint() (fingerprint, method string) {
	method = MethodAll
	if b.Kubelet.static() {
		method = MethodExclusive
	}
	published := map[string]bool{}
	for _, z := range b.result.Zones {
		for _, r := range z.Resources {
			published[r.Name] = true
		}
	}
	var names []PodName
	for i := range b.Pods {
		p := &b.Pods[i]
		if method == MethodAll || exclusive(p, published) {
			names = append(names, PodName{p.Namespace, p.Name})
		}
	}
	return Fingerprint(names), method
}

// exclusive reports whether a pod holds CPUs, memory, or devices of published resources.
func exclusive(p *podres.Pod, published map[string]bool) bool {
	if len(p.CPUs) > 0 || len(p.Memory) > 0 {
		return true
	}
	return slices.ContainsFunc(p.Containers, func(c podres.Container) bool {
		return len(c.CPUs) > 0 || len(c.Memory) > 0 || slices.ContainsFunc(c.Devices, func(d podres.Devices) bool { return published[d.Resource] })
	})
}

// notes adds the devices of claims.
func (b *builder) notes() {
	claims := map[string]bool{}
	for i := range b.Pods {
		for _, c := range b.Pods[i].Containers {
			for _, claim := range c.Claims {
				if claim.Device != "" {
					claims[strings.Join([]string{claim.Driver, claim.Pool, claim.Device}, "/")] = true
				}
			}
		}
	}
	b.result.Claims = slices.Sorted(maps.Keys(claims))
}
