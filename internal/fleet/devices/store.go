package devices

import (
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// stored is a slice.
type stored struct {
	resourceslice.Slice
	version string    // the resourceVersion of the object
	owner   types.UID // of the Node that owns it; empty: none does
}

// key returns the pool of the slice.
func (s *stored) key() resourceslice.PoolKey {
	return resourceslice.PoolKey{Driver: s.Driver, Name: s.Pool}
}

// spread is the slices of a pool that are not of one node, by name.
type spread map[string]facts.Slice

// Add implements cache.ReflectorStore.
func (d *Devices) Add(object any) error { return d.Update(object) }

// Update implements cache.ReflectorStore. It keeps the parts that rules read, not the object.
func (d *Devices) Update(object any) error {
	s, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return fmt.Errorf("expected a ResourceSlice, found %T", object)
	}
	d.mu.Lock()
	changed := d.put(s)
	d.remember(changed...)
	d.mu.Unlock()
	d.notify(changed...)
	return nil
}

// Delete implements cache.ReflectorStore.
func (d *Devices) Delete(object any) error {
	s, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return fmt.Errorf("expected a ResourceSlice, found %T", object)
	}
	d.mu.Lock()
	changed := d.drop(s.Name)
	d.remember(changed...)
	d.mu.Unlock()
	d.notify(changed...)
	return nil
}

// Replace implements cache.ReflectorStore.
func (d *Devices) Replace(objects []any, _ string) error {
	d.mu.Lock()
	changed, listed := map[string]bool{}, map[string]bool{}
	for _, object := range objects {
		if s, ok := object.(*resourcev1.ResourceSlice); ok {
			listed[s.Name] = true
			for _, node := range d.put(s) {
				changed[node] = true
			}
		}
	}
	for name := range d.ignore {
		if !listed[name] {
			delete(d.ignore, name)
		}
	}
	for name := range d.slices {
		if !listed[name] {
			for _, node := range d.drop(name) {
				changed[node] = true
			}
		}
	}
	d.remember(slices.Sorted(maps.Keys(changed))...)
	d.listed = true
	for _, node := range d.begin() {
		changed[node] = true
	}
	d.mu.Unlock()
	d.notify(slices.Sorted(maps.Keys(changed))...)
	return nil
}

// begin notes that the devices of all nodes are known, once they are, and returns the nodes then: what no slice describes has no devices, and
// this was unknown.
func (d *Devices) begin() []string {
	if d.synced || !d.listed || d.taints.pending {
		return nil
	}
	d.synced = true
	return slices.Collect(maps.Keys(d.nodes))
}

// unique returns names sorted, each once.
func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// Resync implements cache.ReflectorStore.
func (d *Devices) Resync() error { return nil }

// put stores a slice and returns the nodes that it described and describes.
func (d *Devices) put(s *resourcev1.ResourceSlice) (changed []string) {
	now := stored{resourceslice.Read(s, nodefeature.Interner()), s.ResourceVersion, ownerOf(s)}
	delete(d.ignore, s.Name)
	switch {
	case !d.opt.Counts(now.Driver):
		d.ignore[s.Name] = IgnoredDriver
		return d.remove(s.Name)
	case len(now.Parts) == 0:
		d.ignore[s.Name] = IgnoredShared
	}
	before, had := d.slices[s.Name]
	if had && before.Equal(&now.Slice) {
		d.slices[s.Name] = now
		return nil
	}
	changed = d.forget(s.Name)
	d.slices[s.Name] = now
	for _, p := range now.Parts {
		d.of(p.Node).slices[s.Name] = now.Of(p)
		changed = append(changed, p.Node)
	}
	if now.Spread {
		if d.spread[now.key()] == nil {
			d.spread[now.key()] = spread{}
		}
		d.spread[now.key()][s.Name] = now.Slice.Slice
	}
	if had && before.key() != now.key() {
		changed = append(changed, d.count(before.key())...)
	}
	return unique(append(changed, d.count(now.key())...))
}

// drop forgets a slice that was deleted, and returns the nodes that it described.
func (d *Devices) drop(name string) []string {
	delete(d.ignore, name)
	return d.remove(name)
}

// remove forgets a slice, and returns the nodes for which this is a change.
func (d *Devices) remove(name string) []string {
	before := d.slices[name]
	return unique(append(d.forget(name), d.count(before.key())...))
}

// forget forgets a slice without counting those of its pool, and returns the nodes that it described.
func (d *Devices) forget(name string) (changed []string) {
	before, ok := d.slices[name]
	if !ok {
		return nil
	}
	delete(d.slices, name)
	for _, p := range before.Parts {
		m := d.nodes[p.Node]
		delete(m.slices, name)
		if m.uid == "" && len(m.slices) == 0 && len(m.pools) == 0 {
			delete(d.nodes, p.Node) // the Node was deleted, or has never existed
		}
		changed = append(changed, p.Node)
	}
	if of := d.spread[before.key()]; of != nil {
		if delete(of, name); len(of) == 0 {
			delete(d.spread, before.key())
		}
	}
	return changed
}

// count counts the slices of a pool that are not of one node. It returns the nodes for which another slice of the pool than their own ones
// matters: all of them, if the pool is complete now or is not any more, or has a new generation.
func (d *Devices) count(key resourceslice.PoolKey) (changed []string) {
	var before, now resourceslice.Spread
	if p := d.spreads[key]; p != nil {
		before = *p
	}
	for _, s := range d.spread[key] {
		now.Add(s)
	}
	if delete(d.spreads, key); now != (resourceslice.Spread{}) {
		d.spreads[key] = &now
	}
	if before.Complete() == now.Complete() && before.Generation == now.Generation {
		return nil
	}
	for name, m := range d.nodes {
		if m.pools[key] != nil || m.has(key) {
			changed = append(changed, name)
		}
	}
	return changed
}

// ownerOf returns the UID of the Node that owns a slice.
func ownerOf(s *resourcev1.ResourceSlice) types.UID {
	for _, o := range s.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}
