package topology

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/podres"
)

// randomNode is a node whose resources are given to pods as a kubelet does it. Zones has what is right afterwards, by the id of the NUMA
// node and the name of the resource: the capacity, what is allocatable, and what is left.
type randomNode struct {
	*rand.Rand
	ids     []int64
	zones   map[int64]map[string]*[3]int64
	archive string
	a       podres.Allocatable
	pods    []podres.Pod
}

func newRandomNode(seed uint64) *randomNode {
	n := &randomNode{Rand: rand.New(rand.NewPCG(seed, 1)), zones: map[int64]map[string]*[3]int64{}}
	for id := int64(0); len(n.ids) == 0 || len(n.ids) < 4 && n.IntN(3) > 0; id += 1 + n.Int64N(5) {
		n.ids = append(n.ids, id)
		n.zones[id] = map[string]*[3]int64{}
	}
	for i := range 1 + n.IntN(4) {
		n.pods = append(n.pods, podres.Pod{Name: fmt.Sprint("p", i), Containers: make([]podres.Container, 1+n.IntN(3))})
	}
	lists := n.giveCPUs()
	kib, pages := n.giveMemory("memory", 1<<10), n.giveMemory("hugepages-2Mi", 2<<20)
	n.giveDevices()
	for i := range n.pods {
		if n.IntN(3) == 0 {
			n.lift(&n.pods[i])
		}
	}
	n.archive = online(strings.Trim(strings.ReplaceAll(fmt.Sprint(n.ids), " ", ","), "[]"))
	for _, id := range n.ids {
		n.archive += numaNode(int(id), lists[id], strings.Repeat("10 ", len(n.ids)), int(kib[id])) +
			fmt.Sprintf("-- sys/devices/system/node/node%d/hugepages/hugepages-2048kB/ --\nnr_hugepages: %d\n", id, pages[id])
	}
	return n
}

// any returns any container.
func (n *randomNode) any() *podres.Container {
	p := &n.pods[n.IntN(len(n.pods))]
	return &p.Containers[n.IntN(len(p.Containers))]
}

// giveCPUs returns the lists of CPUs: some are reserved, some offline.
func (n *randomNode) giveCPUs() map[int64]string {
	lists, cpu := map[int64]string{}, int64(0)
	for _, id := range n.ids {
		z := &[3]int64{}
		n.zones[id]["cpu"] = z
		var list []string
		for range n.IntN(6) {
			cpu += 1 + n.Int64N(2)
			list = append(list, fmt.Sprint(cpu))
			z[0]++
			if n.IntN(4) == 0 {
				continue
			}
			n.a.CPUs = append(n.a.CPUs, cpu)
			z[1]++
			if n.IntN(2) == 0 {
				z[2]++
				continue
			}
			c := n.any()
			c.CPUs = append(c.CPUs, cpu)
		}
		lists[id] = strings.Join(list, ",")
	}
	return lists
}

// giveMemory returns what each NUMA node has, in units. Either each block is of one NUMA node, or all blocks are of the first two.
func (n *randomNode) giveMemory(kind string, unit int64) map[int64]int64 {
	capacity := map[int64]int64{}
	for _, id := range n.ids {
		capacity[id] = n.Int64N(9)
		if allocatable := n.Int64N(capacity[id] + 1); allocatable > 0 { // the kubelet lists no empty blocks
			n.a.Memory = append(n.a.Memory, memory(kind, uint64(allocatable*unit), id))
			n.zones[id][kind] = &[3]int64{capacity[id] * unit, allocatable * unit, allocatable * unit}
		}
	}
	pair := len(n.ids) > 1 && n.IntN(2) == 0
	for range n.IntN(5) {
		of := n.ids[:min(2, len(n.ids))]
		if !pair {
			of = []int64{n.ids[n.IntN(len(n.ids))]}
		}
		size := int64(0)
		for _, id := range of { // ascending; a unit more at a time
			for z := n.zones[id][kind]; z != nil && z[2] > 0 && n.IntN(5) > 0; size++ {
				z[2] -= unit
			}
			if z := n.zones[id][kind]; z != nil && z[2] > 0 {
				break // not full, so that the next one has no part in it
			}
		}
		if size > 0 {
			c := n.any()
			c.Memory = append(c.Memory, memory(kind, uint64(size*unit), of...))
		}
	}
	return capacity
}

// giveDevices has devices near to one, two, unknown and no NUMA nodes.
func (n *randomNode) giveDevices() {
	for i := range n.IntN(12) {
		name, id := fmt.Sprint("v/", n.IntN(2)), fmt.Sprint(i)
		one, other := n.ids[n.IntN(len(n.ids))], n.ids[n.IntN(len(n.ids))]
		entries := [][]podres.Devices{
			{devices(name, id, one)},
			{devices(name, id, one), devices(name, id, other)},
			{devices(name, id, other, one, -1)},
			{devices(name, id, 77)},
			{devices(name, id)},
		}[n.IntN(5)]
		held := int64(n.IntN(2))
		near := map[int64]bool{}
		for _, e := range entries {
			for _, zone := range e.Topology {
				near[zone] = true
			}
		}
		for zone := range near {
			if resources := n.zones[zone]; resources != nil {
				if resources[name] == nil {
					resources[name] = &[3]int64{}
				}
				z := resources[name]
				z[0], z[1], z[2] = z[0]+1, z[1]+1, z[2]+1-held
			}
		}
		n.a.Devices = append(n.a.Devices, entries...)
		if held > 0 {
			c := n.any()
			c.Devices = append(c.Devices, entries...)
		}
	}
}

// lift lists CPUs and memory for the pod as a whole, as Kubernetes 1.37 does, and for some of its containers, too.
func (n *randomNode) lift(p *podres.Pod) {
	sums := map[string]*podres.Memory{}
	for i := range p.Containers {
		c := &p.Containers[i]
		p.CPUs = append(p.CPUs, c.CPUs...)
		for _, m := range c.Memory {
			key := fmt.Sprint(m.Type, m.Topology)
			if sums[key] == nil {
				sums[key] = &podres.Memory{Type: m.Type, Topology: m.Topology}
			}
			sums[key].Bytes += m.Bytes
		}
		if n.IntN(2) == 0 {
			c.CPUs, c.Memory = nil, nil
		}
	}
	for _, m := range sums {
		p.Memory = append(p.Memory, *m)
	}
}

// TestZonesOfRandomNodes compares with the amounts that were left when pods got them, which were never computed from the kubelet's answers.
func TestZonesOfRandomNodes(t *testing.T) {
	for seed := range uint64(3000) {
		n := newRandomNode(seed)
		want := map[string]string{}
		for id, resources := range n.zones {
			for name, z := range resources {
				want[fmt.Sprintf("node-%d %s", id, name)] = fmt.Sprint(*z)
			}
		}
		r := Build(&Input{Node: "n1", Machine: machine(t, n.archive), Kubelet: static(), Allocatable: &n.a, Pods: n.pods})
		got := map[string]string{}
		for _, z := range r.Zones {
			for _, q := range z.Resources {
				got[z.Name+" "+q.Name] = fmt.Sprint([3]int64{q.Capacity.Value(), q.Allocatable.Value(), q.Available.Value()})
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || r.Negative > 0 || len(r.Unknown) > 0 {
			t.Fatalf("seed %d: negative %d, unknown %v; zones (-want +got):\n%s\nallocatable %+v\npods %+v\n%s", seed, r.Negative, r.Unknown, diff, n.a, n.pods, n.archive)
		}
	}
}
