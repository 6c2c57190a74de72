package rules

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/glob"
	"github.com/assay-project/assay/rules/lang/match"
)

// Masking defines feature values that rules must not compare, read or write, such as passwords and tokens that were published by
// accident. The existence of such an element is not secret: Exists and DoesNotExist match it.
type Masking struct {
	// Mode selects the rules to which masking applies.
	Mode MaskMode
	// Elements are names of elements, with * for any run of characters. Case does not matter. Nil means DefaultMasked.
	Elements []string
}

// MaskMode selects the rules for which values are masked.
type MaskMode string

// The modes of masking. The default is MaskAlways.
const (
	MaskAlways    MaskMode = "always"
	MaskNever     MaskMode = "never"
	MaskSensitive MaskMode = "sensitive" // sensitive rules may read them
)

// DefaultMasked are the elements that are masked by default.
var DefaultMasked = []string{"*password*", "*token*"}

func (m *Masking) applies(sensitive bool) bool {
	switch m.Mode {
	case MaskNever:
		return false
	case MaskSensitive:
		return !sensitive
	}
	return true
}

func (m *Masking) masks(element string) bool {
	patterns := m.Elements
	if patterns == nil {
		patterns = DefaultMasked
	}
	element = strings.ToLower(element)
	for _, p := range patterns {
		if glob.Match(strings.ToLower(p), element) {
			return true
		}
	}
	return false
}

// instances removes masked attributes from the instances of elements. Elements of one feature share one list of instances.
func (m *Masking) instances(elements []match.Element) []match.Element {
	if len(elements) == 0 || !elements[0].Instance.Exists() {
		return elements
	}
	all := elements[0].Instance.List()
	shown := all.Without(m.masks)
	if shown == all {
		return elements
	}
	out := slices.Clone(elements)
	for i := range out {
		if out[i].Instance.Exists() {
			out[i].Instance = shown.Row(out[i].Instance.Index())
		}
	}
	return out
}

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

// Place returns a path up to the first key that the author chose. The rest of the path of a sensitive rule could contain sensitive
// values.
func Place(path string) string {
	for i := range len(path) - 1 {
		if path[i] == '[' && (path[i+1] < '0' || path[i+1] > '9') {
			return path[:i]
		}
	}
	return path
}

// withheldKey replaces a rejected key of a sensitive rule. Keys that are written to a node are public anyway.
const withheldKey = "(withheld)"

// conceal returns a rejection without sensitive values.
func (s *RuleSet) conceal(r Rejection) Rejection {
	if !s.sensitive {
		return r
	}
	r.Key = withheldKey
	if !r.Missing {
		r.Reason = "no rule may write it"
	}
	return r
}

// concealed returns rejections without sensitive values. It does not change the list, which is shared.
func (s *RuleSet) concealed(list []Rejection) []Rejection {
	if !s.sensitive {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		out[i] = s.conceal(out[i])
	}
	return out
}
