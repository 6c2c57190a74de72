package check

import (
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/internal/schemacheck"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/yamltree"
)

// schemaProblems returns the errors of the API server for a document whose review found no errors.
func schemaProblems(d *manifest.Document) []manifest.Problem {
	var object map[string]any
	if err := utiljson.Unmarshal(yamltree.JSON(d.Root), &object); err != nil {
		return []manifest.Problem{d.Problem(manifest.Error, "type", "", err.Error())}
	}
	var out []manifest.Problem
	for _, e := range schemacheck.Create(object) {
		if d.BasedOnFiles() && strings.HasPrefix(e.Field, "spec.basedOn") {
			continue // reported as a warning
		}
		p := d.Problem(manifest.Error, "schema", e.Field, review.Text(e))
		if e.Type == field.ErrorTypeInvalid && strings.Contains(e.Detail, "in body should") {
			p.Message = strings.TrimPrefix(e.Detail, e.Field+" in body ") // the path is already in the problem
		}
		out = append(out, p)
	}
	return out
}
