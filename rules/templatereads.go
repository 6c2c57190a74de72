package rules

import "github.com/assay-project/assay/rules/lang/tmpl"

// TemplateElement is a field of an element that a template of a rule reads.
type TemplateElement struct {
	tmpl.ElementPath
	// Template is the field of the rule: labelsTemplate or varsTemplate.
	Template string
}

// TemplateElements returns the fields of elements that the templates of a rule read, as far as their source shows. It returns nil for
// a rule with errors.
func (s *RuleSet) TemplateElements(index int) (out []TemplateElement) {
	for i := range s.rules {
		r := s.rules[i]
		if r.ref.Index != index {
			continue
		}
		if r.labelsTemplate != nil {
			for _, e := range r.labelsTemplate.ElementPaths() {
				out = append(out, TemplateElement{e, "labelsTemplate"})
			}
		}
		if r.varsTemplate != nil {
			for _, e := range r.varsTemplate.ElementPaths() {
				out = append(out, TemplateElement{e, "varsTemplate"})
			}
		}
	}
	return out
}
