package expr

import "github.com/assay-project/assay/rules/suggest"

// maxEdits is the maximum number of letters by which a suggested name may differ.
const maxEdits = 2

// hint returns a hint that suggests the closest known name, or "" if none is close.
func hint(name string, known []string) string {
	best := suggest.Nearest(name, known, min(maxEdits, len(name)/2)+1)
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}
