package rules

// Hides reports whether the values of an element are kept from people as well as from rules: whoever prints what a node has
// asks first.
func (m *Masking) Hides(element string) bool { return m.Mode != MaskNever && m.masks(element) }
