package check

import (
	"fmt"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/yamltree"
)

// templateFields are the fields that refer to a template in a file, with the field that holds the content.
var templateFields = map[string]string{"labelsTemplateFrom": "labelsTemplate", "varsTemplateFrom": "varsTemplate"}

// embedTemplates replaces references to template files, {file: NAME} relative to the document, by the content of the files, as assay template
// does. It returns a warning for each, since the cluster does not read files, and an error for a file that cannot be read.
func embedTemplates(d *manifest.Document) (out []manifest.Problem) {
	list := d.Child("spec", "rules")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	for r, rule := range list.Content {
		if rule.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(rule.Content); i += 2 {
			key, from := rule.Content[i], rule.Content[i+1]
			name := yamltree.Field(from, "file")
			if templateFields[key.Value] == "" || from.Kind != yaml.MappingNode || name == nil || len(from.Content) > 2 || yamltree.Field(rule, templateFields[key.Value]) != nil {
				continue // the review reports other fields, and both
			}
			path := name.Value
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(d.File().Name), path)
			}
			at := fmt.Sprintf("spec.rules[%d].%s", r, key.Value)
			text, err := input.Read(path, nil)
			if err != nil {
				out = append(out, d.Problem(manifest.Error, "template-file", at, err.Error()))
				continue
			}
			out = append(out, d.Problem(manifest.Warning, "template-file", at,
				"the cluster does not read files: apply the output of assay template copy --embed-all FILE"))
			key.Value = templateFields[key.Value]
			rule.Content[i+1] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.LiteralStyle, Value: string(text), Line: from.Line, Column: from.Column}
		}
	}
	return out
}
