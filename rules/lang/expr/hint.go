package expr

import "github.com/assay-project/assay/rules/suggest"

// maxEdits is how many letters a name may be off to be suggested: two typing mistakes.
const maxEdits = 2

// suggest returns a hint that names the closest of the known names, or nothing if none is close.
func hint(name string, known []string) string {
	best := suggest.Nearest(name, known, min(maxEdits, len(name)/2)+1)
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}
