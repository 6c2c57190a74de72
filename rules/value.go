package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/lang/tmpl"
	"github.com/assay-project/assay/rules/warning"
)

// Value is a compiled string with expressions that has a value on each node. It is immutable and safe for concurrent use.
type Value struct {
	program *Program // has no rules; evaluations read its options
	rule    *rule    // has no matchers; evaluations read its features
	text    *expr.Text
	size    int
}

// CompileValue compiles a string with at least one {expression} that reads features. It returns nil if it adds errors to the report.
func CompileValue(path *field.Path, source string, opt Options) (*Value, *Report) {
	report := &Report{}
	c := newCompiler(&opt, report, MaxRequirementSize)
	c.phaseNumber = phaseMain
	r := &rule{set: &RuleSet{}, keys: &c.opt.Keys}
	c.scope = c.newScope(r, &nfdv1alpha1.Rule{})
	if !c.size.Take(ruleBytes + size.Entry("", source)) {
		report.Errors, report.Over = field.ErrorList{tooLarge(path, c.limit)}, true
		return nil, report
	}
	text := c.text(path, source, expr.Strict)
	if text == nil {
		return nil, report
	}
	if text.IsLiteral() {
		report.add(field.Invalid(path, source, `is the same on every node; write an expression, such as {@"system.dmiid.bios_version"}`))
		return nil, report
	}
	r.vars = []assignment{{key: expr.Literal("value"), value: text}}
	c.finish(r)
	return &Value{program: &Program{opt: opt}, rule: r, text: text, size: c.size.Used()}, report
}

// Size returns the estimated size of the value in bytes; see package size.
func (v *Value) Size() int { return v.size }

// Reads returns the names of the features that the value reads, sorted.
func (v *Value) Reads() []string { return v.rule.reads }

// ReadsMatched reports whether the value depends on outputs of rules.
func (v *Value) ReadsMatched() bool { return v.rule.readsMatched }

// Eval returns the value on a node; ok is false if the node lacks something that the value reads. The error is another reason why there is
// no value, for example that an expression takes too many steps.
func (v *Value) Eval(in Input) (value string, ok bool, err error) {
	e := newEvaluation(v.program, &in)
	e.begin(v.rule)
	value, err = v.text.Format(e)
	var fault *expr.Error
	if errors.As(err, &fault) && fault.Missing {
		return "", false, nil
	}
	return value, err == nil, err
}

// elementOf returns one element of a feature as a value: the string of an attribute, or true for a flag.
func elementOf(f *facts.Feature, element string) (expr.Value, bool) {
	if f == nil {
		return expr.Value{}, false
	}
	if v, ok := f.Attributes.Get(element); ok {
		return expr.OfText(v), true
	}
	return expr.OfBool(true), f.Flags.Has(element)
}

// featureOf returns a whole feature as a value: a list of maps for instances, a map for attributes, a list of names
// for flags.
func featureOf(f *facts.Feature) (expr.Value, bool) {
	switch {
	case f == nil:
		return expr.Value{}, false
	case f.Instances != nil:
		return expr.OfList(instanceList{f.Instances}), true
	case f.Attributes != nil:
		return expr.OfMap(attributeMap{f.Attributes}), true
	default:
		return expr.OfList(expr.Names(f.Flags.Names())), true
	}
}

// matchedOf returns the elements of a feature that matchers matched, in the same form as featureOf.
func matchedOf(matched []match.FeatureElements, feature string) (expr.Value, bool) {
	var list expr.Values
	attributes := expr.Texts{}
	for _, f := range matched {
		if !strings.EqualFold(f.Feature, feature) {
			continue
		}
		for _, el := range f.Elements {
			switch {
			case el.Instance.Exists():
				list = append(list, expr.OfMap(rowMap{el.Instance}))
			case el.HasValue:
				attributes[el.Name] = el.Value
			default:
				list = append(list, expr.OfText(el.Name))
			}
		}
	}
	if len(attributes) > 0 {
		return expr.OfMap(attributes), true
	}
	return expr.OfList(list), len(list) > 0
}

type attributeMap struct{ *facts.Attributes }

// Get implements expr.Map.
func (m attributeMap) Get(name string) (expr.Value, bool) {
	v, ok := m.Attributes.Get(name)
	return expr.OfText(v), ok
}

// Keys implements expr.Map.
func (m attributeMap) Keys() []string { return m.Names() }

type instanceList struct{ *facts.Instances }

// At implements expr.List.
func (l instanceList) At(i int) expr.Value { return expr.OfMap(rowMap{l.Row(i)}) }

// rowMap reads one instance in place.
type rowMap struct{ facts.Row }

// Len implements expr.Map.
func (m rowMap) Len() int { return len(m.Names()) }

// Get implements expr.Map.
func (m rowMap) Get(name string) (expr.Value, bool) {
	v, ok := m.Row.Get(name)
	return expr.OfText(v), ok
}

// Keys implements expr.Map.
func (m rowMap) Keys() []string { return m.Names() }

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
