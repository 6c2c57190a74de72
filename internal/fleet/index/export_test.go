package index

// Bound changes how much work one requirement may be on all nodes together.
func (v *View) Bound(work int) { v.maxWork = work }
