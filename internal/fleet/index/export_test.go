package index

// Bound changes how much work one requirement may be on all nodes together.
func (v *Index) Bound(work int) { v.maxWork = work }
