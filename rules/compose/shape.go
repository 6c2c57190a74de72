package compose

import (
	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/manifest"
)

// CheckFields returns a manifest.Problem for each field of the document's spec that is unknown or has a value of the wrong type. The API
// server would drop a misspelled field, and a rule without a matcher matches more nodes.
func (d *YAML) CheckFields() error {
	return checkShape(d.Spec, func(*yaml.Node) string { return d.ID }).orNil()
}

func checkShape(spec *yaml.Node, origin func(*yaml.Node) string) (out Errors) {
	for _, p := range manifest.CheckSpec(spec, origin) {
		out = append(out, p)
	}
	return out
}
