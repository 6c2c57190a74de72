package report

import (
	"cmp"
	"slices"

	"github.com/assay-project/assay/rules/manifest"
)

// Finding is an error or a warning in a file.
type Finding struct {
	File string
	manifest.Problem
}

// Sort sorts findings by file and position.
func Sort(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Errors returns the number of findings that are errors.
func Errors(list []Finding) int {
	n := 0
	for _, f := range list {
		if f.Severity == manifest.Error {
			n++
		}
	}
	return n
}
