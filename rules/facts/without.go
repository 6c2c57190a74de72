package facts

import (
	"slices"
	"strings"
)

// Without returns the facts without the features whose lower-case names drop selects. It returns f itself if it has none of them.
func (f *Facts) Without(in *Interner, drop func(feature string) bool) *Facts {
	if f == nil || !slices.ContainsFunc(f.Names(), func(name string) bool { return drop(strings.ToLower(name)) }) {
		return f
	}
	b := builder{}
	for i, name := range f.Names() {
		if !drop(strings.ToLower(name)) {
			*b.at(name) = *f.features[i]
		}
	}
	return b.build(in)
}
