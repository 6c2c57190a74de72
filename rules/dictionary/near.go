package dictionary

import (
	"strings"
	"sync"

	"github.com/assay-project/assay/rules/suggest"
)

// maxTypo is the maximum number of letters by which a suggested name may differ.
const maxTypo = 2

// Nearest returns the name that is most similar to s, or "" if none is similar.
func Nearest(s string, names []string) string {
	best, bestDistance := "", maxTypo+1
	like := shapeOf(s)
	for _, name := range names {
		known, ok := shapes()[name]
		if !ok {
			known = shapeOf(name)
		}
		if known.squashed == like.squashed {
			return name
		}
		if known.digits != like.digits {
			continue // names of different versions are similar but not typos
		}
		if d := suggest.Distance(s, name, bestDistance); d < bestDistance && d*4 <= len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}

// shape is what Nearest compares of a name.
type shape struct{ squashed, digits string }

func shapeOf(name string) shape { return shape{Squash(name), digits(name)} }

// shapes are those of the names in the dictionary, because each name of a rule is compared with many of them.
var shapes = sync.OnceValue(func() map[string]shape {
	out := map[string]shape{}
	for _, f := range all() {
		out[f.Name] = shapeOf(f.Name)
		for _, element := range f.ElementNames() {
			out[element] = shapeOf(element)
		}
	}
	return out
})

// Typo reports whether a name differs so little from a known one that it must be a typo.
func Typo(s, known string) bool {
	return Squash(s) == Squash(known) || len(known) >= 6 && suggest.Distance(s, known, 2) == 1
}

// Separators removes the separators of names.
var Separators = strings.NewReplacer("-", "", "_", "", ".", "", "/", "")

// Squash removes differences in case, separators and plural.
func Squash(s string) string {
	s = strings.ToLower(Separators.Replace(s))
	return strings.TrimSuffix(s, "s")
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}
