package index

// Bound sets the maximum work for one requirement on all nodes.
func (v *Index) Bound(work int) { v.maxWork = work }
