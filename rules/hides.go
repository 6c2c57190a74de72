package rules

import nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"

// Hidden is shown in place of a masked value.
const Hidden = "(not shown)"

// Hides reports whether the values of an element are hidden from users as well as from rules. Call it before printing facts.
func (m *Masking) Hides(element string) bool { return m.Mode != MaskNever && m.masks(element) }

// Conceal replaces the masked values of features by Hidden, in place.
func (m *Masking) Conceal(f *nfdv1alpha1.Features) {
	conceal := func(elements map[string]string) {
		for name := range elements {
			if m.Hides(name) {
				elements[name] = Hidden
			}
		}
	}
	for _, set := range f.Attributes {
		conceal(set.Elements)
	}
	for _, set := range f.Instances {
		for i := range set.Elements {
			conceal(set.Elements[i].Attributes)
		}
	}
}
