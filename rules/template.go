package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/lang/tmpl"
	"github.com/assay-project/assay/rules/warning"
)

// template compiles labelsTemplate or varsTemplate, and checks that the matchers provide the features that it reads.
func (c *compiler) template(path *field.Path, source string, in *nfdv1alpha1.Rule) *tmpl.Template {
	if source == "" {
		return nil
	}
	t, problems := c.compileTemplate(source)
	for _, p := range problems {
		text := fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
		if p.Warning {
			c.report.warn(path, warning.Unlikely, "%s", text)
			continue
		}
		c.report.add(field.Invalid(path, clip.Text(source, maxShown), text))
	}
	if t == nil {
		return nil
	}
	if len(in.MatchFeatures) == 0 && len(in.MatchAny) == 0 && len(in.Conditions) == 0 {
		c.report.defect(path, "a template is expanded for each matcher, and this rule has none; add matchFeatures")
	}
	c.templateData(path, t, in)
	return t
}

// compiledTemplate is a compiled template. It is immutable, and rules may share it.
type compiledTemplate struct {
	template *tmpl.Template
	problems []tmpl.Diagnostic
}

func (c *compiler) compileTemplate(source string) (*tmpl.Template, []tmpl.Diagnostic) {
	known, ok := c.compiled[source]
	if !ok {
		if !c.size.Take(size.Template(source)) {
			return nil, nil
		}
		known.template, known.problems = tmpl.Compile(source, tmpl.Options{Strict: c.opt.Strict, Size: c.size})
		if c.compiled == nil {
			c.compiled = map[string]compiledTemplate{}
		}
		c.compiled[source] = known
	}
	return known.template, known.problems
}

// templateData warns if a template reads a feature that one of the matchers does not provide: expansion then fails whenever that
// matcher matches.
func (c *compiler) templateData(path *field.Path, t *tmpl.Template, in *nfdv1alpha1.Rule) {
	check := func(matcher string, terms nfdv1alpha1.FeatureMatcher) {
		for _, want := range t.DataPaths() {
			if want.Conditional {
				continue // this part of the template may not run
			}
			given := slices.ContainsFunc(terms, func(term nfdv1alpha1.FeatureMatcherTerm) bool {
				return term.Feature == want.Feature() || strings.ToLower(term.Feature) == want.Feature()
			})
			if !given {
				c.report.defect(path, "line %d: .%s is not given by %s, so the template fails there", want.Line, want.Feature(), matcher)
			}
		}
	}
	for i, alternative := range in.MatchAny {
		check(fmt.Sprintf("matchAny[%d]", i), alternative.MatchFeatures)
	}
	if len(in.MatchFeatures) > 0 {
		check("matchFeatures", in.MatchFeatures)
	}
}

// RuleTemplate is a compiled template of a rule.
type RuleTemplate struct {
	*tmpl.Template
	// Field is the field of the rule: labelsTemplate or varsTemplate.
	Field string
}

// Templates returns the templates of a rule. It returns nil for a rule with errors.
func (s *RuleSet) Templates(index int) (out []RuleTemplate) {
	for _, r := range s.rules {
		if r.ref.Index != index {
			continue
		}
		for _, t := range []RuleTemplate{{r.labelsTemplate, "labelsTemplate"}, {r.varsTemplate, "varsTemplate"}} {
			if t.Template != nil {
				out = append(out, t)
			}
		}
	}
	return out
}
