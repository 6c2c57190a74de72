package devices

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/rules/facts"
)

// emptied is a node that lost its last slice before it was evaluated.
type emptied struct {
	node string
	at   time.Time
}

// remembered is what is known of a node.
type remembered struct {
	uid    types.UID // of the Node that the pools were seen on; empty: none was evaluated yet
	slices map[string]facts.Slice
	pools  map[resourceslice.PoolKey]*pool
	facts  *facts.Facts // of listed
	listed []facts.Pool
}

// pool is the last complete content of a pool, whether it is complete now, and since when it was seen not to be; zero: it is, or was.
type pool struct {
	facts.Pool
	since time.Time
	owner types.UID // of the Node that owns its slices; empty: not all have the same one
}

// remember stores the complete pools of nodes whose slices have changed, and since when the others have not been complete. It does not wait
// until the nodes are evaluated: that may fail for hours, and a standby does not.
func (d *Devices) remember(nodes ...string) {
	now := d.opt.Clock.Now()
	for _, node := range nodes {
		m := d.nodes[node]
		if m == nil {
			continue
		}
		d.observe(m)
		if m.uid == "" { // otherwise the grace period begins with the next look
			m.begin(now)
		}
		if m.uid == "" && len(m.slices) == 0 && len(m.pools) > 0 {
			d.left = append(d.left, emptied{node, now})
		}
	}
	for ; len(d.left) > 0 && now.Sub(d.left[0].at) >= d.opt.Grace; d.left = d.left[1:] {
		m := d.nodes[d.left[0].node]
		if m == nil || m.uid != "" || len(m.slices) > 0 {
			continue
		}
		maps.DeleteFunc(m.pools, func(_ resourceslice.PoolKey, p *pool) bool { return now.Sub(p.since) >= d.opt.Grace })
		if len(m.pools) == 0 {
			delete(d.nodes, d.left[0].node)
		}
	}
}

// observe stores the complete pools of a node, and returns all that its slices describe.
func (d *Devices) observe(m *remembered) []facts.Pool {
	list := facts.Pools(d.spreads.Complete(m.sorted()))
	for key, p := range m.pools {
		p.Complete = false
		if of := d.spreads[key]; of != nil && of.Complete() && !m.has(key) {
			delete(m.pools, key) // the devices of the whole pool are those of other nodes now
			m.facts = nil
		}
	}
	for _, l := range list {
		key := resourceslice.PoolKey{Driver: l.Driver, Name: l.Name}
		if !l.Complete {
			continue
		}
		if before := m.pools[key]; before == nil || !slices.Equal(before.Devices, l.Devices) {
			m.facts = nil // for Prove: what was evaluated is older
		}
		m.pools[key] = &pool{Pool: l, owner: d.ownerOf(m, key)}
	}
	return list
}

// has reports whether slices describe a pool of the node.
func (m *remembered) has(key resourceslice.PoolKey) bool {
	for _, s := range m.slices {
		if s.Driver == key.Driver && s.Pool == key.Name {
			return true
		}
	}
	return false
}

// begin starts the grace period of the pools that are not complete.
func (m *remembered) begin(now time.Time) {
	for _, p := range m.pools {
		if !p.Complete && p.since.IsZero() {
			p.since = now
		}
	}
}

// ownerOf returns the UID of the Node that owns all slices of a pool.
func (d *Devices) ownerOf(m *remembered, key resourceslice.PoolKey) (owner types.UID) {
	first := true
	for name, s := range m.slices {
		if s.Driver != key.Driver || s.Pool != key.Name {
			continue
		}
		if o := d.slices[name].owner; first {
			owner, first = o, false
		} else if o != owner {
			return ""
		}
	}
	return owner
}

func (d *Devices) of(node string) *remembered {
	m := d.nodes[node]
	if m == nil {
		m = &remembered{slices: map[string]facts.Slice{}, pools: map[resourceslice.PoolKey]*pool{}}
		d.nodes[node] = m
	}
	return m
}

// sorted returns the slices in the order of their names.
func (m *remembered) sorted() (out []facts.Slice) {
	for _, name := range slices.Sorted(maps.Keys(m.slices)) {
		out = append(out, m.slices[name])
	}
	return out
}

func compare(a, b facts.Pool) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
}

func same(a, b facts.Pool) bool {
	return a.Driver == b.Driver && a.Name == b.Name && a.Complete == b.Complete && a.TooMany == b.TooMany && slices.Equal(a.Devices, b.Devices)
}
