package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/warning"
)

// Trial expands the templates of an object with typical elements. All expansions share the budget of one rule on one node.
type Trial struct {
	Keys  *keys.Policy
	spent rules.TemplateSpent
}

// typicalNodes is the number of nodes with different values on which a template is expanded.
const typicalNodes = 3

// Template returns the warnings about a template of a rule: what its source reads and features do not have, and what happens on typical
// nodes. path is the path of the rule.
func (tr *Trial) Template(path *field.Path, r *nfdv1alpha1.Rule, t rules.RuleTemplate) []warning.Warning {
	l := &linter{}
	path = path.Child(t.Field)
	for _, e := range t.ElementPaths() {
		if why := templateField(e.Feature, e.Field); why != "" {
			l.warn(path, warning.Defect, "line %d: %s", e.Line, why)
		}
	}
	if len(l.out) == 0 && r.Loop == nil && !t.ReadsVars() {
		tr.try(l, path, r, t)
	}
	return l.out
}

// try expands a template for each matcher, until there is a warning.
func (tr *Trial) try(l *linter, path *field.Path, r *nfdv1alpha1.Rule, t rules.RuleTemplate) {
	var matchers []nfdv1alpha1.FeatureMatcher
	for _, alternative := range r.MatchAny {
		matchers = append(matchers, alternative.MatchFeatures)
	}
	for _, terms := range append(matchers, r.MatchFeatures) {
		if len(terms) == 0 || slices.ContainsFunc(terms, untypical) {
			continue
		}
		if tr.one(l, path, terms, t); len(l.out) > 0 {
			return
		}
	}
}

// untypical reports whether the dictionary does not show which elements a term gives to a template.
func untypical(t nfdv1alpha1.FeatureMatcherTerm) bool {
	f := dictionary.Find(strings.ToLower(t.Feature))
	if f == nil || t.MatchExpressions == nil && t.MatchName == nil {
		return true
	}
	named := !f.Is(dictionary.Instances) && t.MatchName == nil && len(*t.MatchExpressions) > 0
	return len(f.ElementNames()) == 0 && !named
}

// one expands a template for one matcher. Reviews of many rules take most of their time here, so that further expansions only confirm what
// the first one shows.
func (tr *Trial) one(l *linter, path *field.Path, terms nfdv1alpha1.FeatureMatcher, t rules.RuleTemplate) {
	open := slices.ContainsFunc(terms, func(t nfdv1alpha1.FeatureMatcherTerm) bool {
		f := dictionary.Find(strings.ToLower(t.Feature))
		return f.Is(dictionary.Instances) && f.Any()
	})
	sample := sample{terms: terms, source: t.Source(), most: 2, optional: true}
	out, err := tr.expand(t, sample)
	switch why := ""; {
	case err != nil && err.Lack != nil && !(err.Lack.Instance && open):
		l.warn(path, warning.Defect, "fails where the rule matches: %s", err)
	case err != nil:
	case t.Field == "labelsTemplate" && joined(out) != "":
		l.warn(path, warning.Defect, "%s", joined(out))
	case t.Field == "labelsTemplate" && tr.never(t, sample, out, &why):
		l.warn(path, warning.Defect, "%s", why)
	case !open && readsOptional(terms, t):
		sample.optional = false
		if _, err := tr.expand(t, sample); err != nil && err.Lack != nil && err.Lack.Instance {
			l.warn(path, warning.Suspicious, "fails on nodes where one element of the feature has no %s, as some have not: %s", err.Lack.Field, err)
		}
	}
}

// never reports whether one of the labels is not written on any typical node, and sets why it is not on the first one.
func (tr *Trial) never(t rules.RuleTemplate, s sample, first map[string]string, why *string) bool {
	if *why = tr.notWritten(first); *why == "" {
		return false
	}
	for s.first = 1; s.first < typicalNodes; s.first++ {
		if out, err := tr.expand(t, s); err != nil || tr.notWritten(out) == "" {
			return false
		}
	}
	return true
}

// readsOptional reports whether the template reads a field that not all elements that the terms give have.
func readsOptional(terms nfdv1alpha1.FeatureMatcher, t rules.RuleTemplate) bool {
	for _, read := range t.ElementPaths() {
		for i := range terms {
			f := dictionary.Find(strings.ToLower(terms[i].Feature))
			if e := f.Element(read.Field); f.Name == strings.ToLower(read.Feature) && f.Is(dictionary.Instances) && e != nil &&
				!required(e, expressionOn(&terms[i], e.Name)) {
				return true
			}
		}
	}
	return false
}

// expand expands a template, unless the budget is spent.
func (tr *Trial) expand(t rules.RuleTemplate, s sample) (map[string]string, *rules.TemplateError) {
	out, err := t.ExpandWithin(&tr.spent, s.elements(), typicalNode{})
	failed, _ := err.(*rules.TemplateError) //nolint:errorlint // ExpandWithin returns no other type
	return out, failed
}

// typicalNode is the node of a trial.
type typicalNode struct{}

func (typicalNode) NodeName() string          { return "node-1" }
func (typicalNode) Var(string) (string, bool) { return "", false }

// notWritten returns why one of the labels is not written, or "".
func (tr *Trial) notWritten(labels map[string]string) string {
	for _, name := range facts.SortedKeys(labels) {
		if strings.HasPrefix(labels[name], "@") {
			continue
		}
		if verdict := tr.Keys.Label(name, labels[name]); !verdict.OK() {
			return fmt.Sprintf("the label %s=%s is not written: %s", name, labels[name], verdict.Message())
		}
	}
	return ""
}

// joined returns which label has another one in its value, or "".
func joined(labels map[string]string) string {
	for _, name := range facts.SortedKeys(labels) {
		if strings.Contains(labels[name], "=") {
			return fmt.Sprintf("the output for two elements is one line, %s=%s: end the output for each element with a line break", name, labels[name])
		}
	}
	return ""
}

// sample are typical elements that satisfy the terms of a matcher, as far as the dictionary has any.
type sample struct {
	terms nfdv1alpha1.FeatureMatcher
	// source is that of the template. Instances have the attributes that it names.
	source string
	// first is the number of the values in the dictionary that the first element has.
	first int
	// most is the number of instances.
	most int
	// optional adds attributes that not all instances have.
	optional bool
}

func (s *sample) elements() []rules.MatchedFeature {
	out := make([]rules.MatchedFeature, len(s.terms))
	for n := range s.terms {
		term := &s.terms[n]
		f := dictionary.Find(strings.ToLower(term.Feature))
		out[n].Feature = term.Feature
		if f.Is(dictionary.Instances) {
			out[n].Elements = s.instances(f, term)
			continue
		}
		for _, name := range given(f, term) {
			element := f.Element(name)
			if element == nil {
				continue // a warning of its own
			}
			one := rules.MatchedElement{Name: name}
			if element.Kind != dictionary.Flag {
				one.HasValue, one.Value = true, typicalValue(element, expressionOn(term, name), s.first)
			}
			out[n].Elements = append(out[n].Elements, one)
		}
	}
	return out
}

// instances returns instances of a feature.
func (s *sample) instances(f *dictionary.Feature, t *nfdv1alpha1.FeatureMatcherTerm) (out []rules.MatchedElement) {
	list := make([]map[string]string, s.most)
	for i := range list {
		list[i] = map[string]string{}
	}
	for i := range f.Elements {
		element := &f.Elements[i]
		if e := expressionOn(t, element.Name); !element.Pattern() && strings.Contains(s.source, element.Name) && (s.optional || required(element, e)) {
			for n := range list {
				list[n][element.Name] = typicalValue(element, e, s.first+n)
			}
		}
	}
	rows := facts.NewInstances(list)
	for i := range list {
		out = append(out, rules.MatchedElement{Instance: rows.Row(i)})
	}
	return out
}

// given returns the names of the elements that a term on flags or attributes gives to a template.
func given(f *dictionary.Feature, t *nfdv1alpha1.FeatureMatcherTerm) []string {
	if t.MatchName != nil || t.MatchExpressions == nil || len(*t.MatchExpressions) == 0 {
		names := f.ElementNames()
		if !f.Is(dictionary.Attributes) {
			names = names[:min(2, len(names))] // flags are alike
		}
		return names
	}
	return facts.SortedKeys(*t.MatchExpressions)
}

// required reports whether each instance that satisfies the expression has the element.
func required(element *dictionary.Element, e *nfdv1alpha1.MatchExpression) bool {
	return element.Always || e != nil && e.Op != nfdv1alpha1.MatchDoesNotExist && e.Op != nfdv1alpha1.MatchNotIn
}

// expressionOn returns the expression of a term on an element, or nil.
func expressionOn(t *nfdv1alpha1.FeatureMatcherTerm, name string) *nfdv1alpha1.MatchExpression {
	if t.MatchExpressions == nil {
		return nil
	}
	return (*t.MatchExpressions)[name]
}

// typicalValue returns the i-th value that an element has, of those that the expression allows.
func typicalValue(element *dictionary.Element, e *nfdv1alpha1.MatchExpression, i int) string {
	list := element.Typical()
	switch {
	case e == nil:
	case e.Op == nfdv1alpha1.MatchIn && len(e.Value) > 0:
		list = e.Value
	case e.Op == nfdv1alpha1.MatchInRegexp:
		list = fitting(list, e.Value)
	}
	if len(list) == 0 {
		return "example"
	}
	if v := list[i%len(list)]; v != "" {
		return v
	}
	return "example"
}

// fitting returns the values that one of the patterns matches.
func fitting(values, patterns []string) (out []string) {
	for _, pattern := range patterns {
		if re, err := regexp.Compile(pattern); err == nil {
			for _, v := range values {
				if re.MatchString(v) {
					out = append(out, v)
				}
			}
		}
	}
	return out
}

// templateField returns the reason why an element of a feature in the data of a template cannot have a field, or "" if it may have it.
func templateField(feature, name string) string {
	f := dictionary.Find(feature)
	fields := f.ElementNames()
	switch {
	case f == nil:
		return ""
	case f.Is(dictionary.Instances) && f.Any():
		if near := dictionary.Nearest(name, fields); near == "" || near == name || !dictionary.Typo(name, near) {
			return ""
		}
	case !f.Is(dictionary.Instances) && !f.Is(dictionary.Attributes):
		fields = []string{"Name"}
	case !f.Is(dictionary.Instances):
		fields = []string{"Name", "Value"}
	}
	if slices.Contains(fields, name) || f.Is(dictionary.Instances) && f.Knows(name) {
		return ""
	}
	for _, field := range fields {
		if strings.EqualFold(dictionary.Separators.Replace(field), dictionary.Separators.Replace(name)) {
			return fmt.Sprintf("an element of .%s has .%s, not .%s", feature, field, name)
		}
	}
	if near := dictionary.Nearest(name, fields); near != "" {
		return fmt.Sprintf("an element of .%s has no .%s; did you mean .%s?", feature, name, near)
	}
	return fmt.Sprintf("an element of .%s has no .%s; it has .%s", feature, name, strings.Join(fields, ", ."))
}
