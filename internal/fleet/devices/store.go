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

// placed is a slice of a node.
type placed struct {
	node, version string    // the resourceVersion of the object
	owner         types.UID // of the Node that owns it; empty: none does
	slice         facts.Slice
}

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
	slice, node := resourceslice.Of(s, nodefeature.Interner())
	switch {
	case node == "":
		d.ignore[s.Name] = IgnoredShared
		return d.remove(s.Name)
	case !d.opt.Counts(slice.Driver):
		d.ignore[s.Name] = IgnoredDriver
		return d.remove(s.Name)
	}
	delete(d.ignore, s.Name)
	if before, ok := d.slices[s.Name]; ok {
		if before.node == node && before.slice == slice {
			d.slices[s.Name] = placed{node, s.ResourceVersion, ownerOf(s), slice}
			return nil
		}
		changed = d.remove(s.Name)
	}
	d.slices[s.Name] = placed{node, s.ResourceVersion, ownerOf(s), slice}
	d.of(node).slices[s.Name] = slice
	return append(changed, node)
}

// drop forgets a slice that was deleted, and returns the node that it described.
func (d *Devices) drop(name string) []string {
	delete(d.ignore, name)
	return d.remove(name)
}

func (d *Devices) remove(name string) []string {
	before, ok := d.slices[name]
	if !ok {
		return nil
	}
	delete(d.slices, name)
	m := d.nodes[before.node]
	delete(m.slices, name)
	if m.uid == "" && len(m.slices) == 0 && len(m.pools) == 0 {
		delete(d.nodes, before.node) // the Node was deleted, or has never existed
	}
	return []string{before.node}
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
