package rules

import (
	"slices"
	"strings"

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
