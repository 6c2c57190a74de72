package lint

import (
	"strings"

	"github.com/assay-project/assay/rules/dictionary"
)

// maxFamily is the maximum number of flags in a message.
const maxFamily = 4

// familyOf returns the first flags that begin with a name, for one such as AVX-512 that is the name of a family, or "".
func familyOf(name string) string {
	short := dictionary.Squash(name)
	if len(short) < minFamily {
		return ""
	}
	var family []string
	for _, flag := range dictionary.Find("cpu.cpuid").Names {
		// AVX10_2 is not AVX10_256.
		if rest, ok := strings.CutPrefix(dictionary.Squash(flag), short); ok && strings.Trim(rest[:min(1, len(rest))], "0123456789") != "" {
			family = append(family, flag)
		}
	}
	if len(family) < 2 {
		return "" // a name that nearest suggests, or a new one
	}
	if len(family) > maxFamily {
		family = append(family[:maxFamily], "…")
	}
	return strings.Join(family, ", ")
}

// minFamily is the minimum length of the name of a family: many flags begin with the same three letters.
const minFamily = 5
