package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/lang/tmpl"
	"github.com/assay-project/assay/rules/warning"
)

// compiler compiles the rules of one object in order.
type compiler struct {
	opt         Options
	report      *Report
	object      string
	phaseNumber int
	sensitive   bool

	// declared holds the variables known so far; open is set if a template or a computed name may have created others.
	declared map[string]bool
	open     bool

	// size is the remaining budget and limit the whole budget, in bytes.
	size  *size.Budget
	limit int

	// shared by the rules of one object
	patterns match.Patterns
	compiled map[string]compiledTemplate

	// mode of the current rule
	mode  expr.Mode
	scope *expr.Scope
}

// newCompiler returns a compiler with a budget of limit bytes, or less if the options set a lower one.
func newCompiler(opt *Options, report *Report, limit int) *compiler {
	if opt.Room > 0 {
		limit = min(limit, opt.Room)
	}
	c := &compiler{opt: *opt, report: report, declared: map[string]bool{}, size: size.NewBudget(limit), limit: limit}
	c.patterns.Size = c.size
	return c
}

// text compiles a string that may contain expressions. If the string has errors, it adds them to the report and returns nil.
func (c *compiler) text(path *field.Path, source string, place expr.Place) *expr.Text {
	t, problems := expr.Compile(source, place, c.mode, c.scope)
	c.problems(path, source, problems)
	return t
}

func (c *compiler) problems(path *field.Path, source string, problems []expr.Diagnostic) {
	for _, p := range problems {
		switch {
		case p.Warning:
			c.report.warn(path, warning.Suspicious, "%s", p.Error())
		default:
			c.report.add(field.Invalid(path, source, p.Error()))
		}
	}
}

// literal returns the value of a string that is the same on every node.
func literal(t *expr.Text) string {
	s, err := t.Format(nil)
	if err != nil {
		panic(err) // evaluating a literal string cannot fail
	}
	return s
}

// reference compiles NFD's @domain.feature.element, which must be the whole value of a label or resource. The second result is
// false if the value is not a reference.
func (c *compiler) reference(path *field.Path, value string) (*expr.Text, bool) {
	if !strings.HasPrefix(value, "@") {
		return nil, false
	}
	if strings.Count(value, ".") < 2 || strings.ContainsAny(value, `"{}`) {
		c.report.defect(path, "invalid reference %q: use @domain.feature.element, such as @kernel.version.major", value)
		return nil, true
	}
	t, problems := expr.Compile(`{@"`+value[1:]+`"}`, expr.Strict, expr.Auto, &expr.Scope{})
	if len(problems) > 0 {
		c.report.defect(path, "%q refers to nothing: %s", value, problems[0].Message)
		return nil, true
	}
	return t, true
}

// templateReference matches a reference in a template: the value of a line.
var templateReference = regexp.MustCompile(`=[ \t]*(@[^\s"{}=]+)[ \t]*(?:[\r\n]|\\n|\{\{|$)`)

// templateReferences returns the references @domain.feature.element that a template has as the value of a line. Only these are resolved: a
// value from a feature must not select another feature.
func (c *compiler) templateReferences(source string) map[string]*assignment {
	var out map[string]*assignment
	for _, found := range templateReference.FindAllStringSubmatch(source, -1) {
		text := found[1]
		value, problems := expr.Compile(`{@"`+text[1:]+`"}`, expr.Strict, expr.Auto, &expr.Scope{})
		if strings.Count(text, ".") < 2 || len(problems) > 0 {
			continue // an invalid value like any other
		}
		if out == nil {
			out = map[string]*assignment{}
		}
		a := &assignment{kind: keys.Label, value: value, reference: text}
		a.late, _ = strings.CutPrefix(text, "@"+nfdv1alpha1.RuleMatchedFeature+".")
		if a.late == text {
			a.late = ""
		}
		out[text] = a
	}
	return out
}

// variables compiles the vars of a rule, ordered so that each variable follows those it refers to.
func (c *compiler) variables(rule *field.Path, vars map[string]string) []assignment {
	if len(vars) == 0 {
		return nil
	}
	path := rule.Child("vars")
	compiled := map[string]assignment{}
	for _, name := range facts.SortedKeys(vars) {
		at := path.Key(name)
		key := c.text(at, name, expr.Strict)
		value := c.text(at, vars[name], expr.Var)
		if key != nil && value != nil {
			compiled[name] = assignment{key: key, value: value}
		}
	}
	order, err := expr.Order(facts.SortedKeys(compiled), func(name string) []string { return compiled[name].value.Names() })
	if err != nil {
		c.report.add(field.Invalid(path, facts.SortedKeys(vars), err.Error()))
		return nil
	}
	out := make([]assignment, 0, len(order))
	for _, name := range order {
		out = append(out, compiled[name])
	}
	return out
}

// assignments compiles labels, annotations or extended resources.
func (c *compiler) assignments(rule *field.Path, kind keys.Kind, values map[string]string, r *rule) []assignment {
	if len(values) == 0 {
		return nil
	}
	path, out := rule.Child(howOf[kind]), make([]assignment, 0, len(values))
	for _, name := range facts.SortedKeys(values) {
		if a := c.assignment(path.Key(name), kind, name, values[name], r); a != nil {
			out = append(out, *a)
		}
	}
	slices.SortStableFunc(out, func(a, b assignment) int { return bareFirst(a.raw, b.raw) })
	return out
}

// bareFirst orders names without a namespace first: if a rule spells one key both ways, the name with the namespace is written last
// and wins, as in NFD.
func bareFirst(a, b string) int { return cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")) }

// assignment compiles one entry. It returns nil if there is an error or if no rule may write the key. If only the value is invalid,
// the entry is void: it removes the key of earlier rules, as in NFD.
func (c *compiler) assignment(path *field.Path, kind keys.Kind, name, value string, r *rule) *assignment {
	a := &assignment{kind: kind, key: c.text(path, name, expr.Strict)}
	place := expr.Strict
	if kind == keys.Annotation {
		place = expr.Free
	}
	isRef := false
	if kind != keys.Annotation {
		if a.value, isRef = c.reference(path, value); isRef {
			a.late, _ = strings.CutPrefix(value, "@"+nfdv1alpha1.RuleMatchedFeature+".")
			if a.late == value {
				a.late = ""
			}
			a.reference = value
		}
	}
	if isRef && a.value == nil {
		r.rejected = append(r.rejected, Rejection{Kind: kind, Key: name, Reason: fmt.Sprintf("%q refers to nothing", value)})
		if a.key == nil || !a.key.IsLiteral() {
			return nil
		}
		a.void, a.raw = true, literal(a.key)
		a.full = checkName(r.keys, kind, a.raw).Key
		return a
	}
	if !isRef {
		c.goTemplate(path, kind, value)
		a.value = c.text(path, value, place)
	}
	if a.key == nil || a.value == nil {
		return nil
	}
	return c.checkLiteral(path, a, name, value, r)
}

// goTemplate warns about a Go template in a field where templates are not expanded.
func (c *compiler) goTemplate(path *field.Path, kind keys.Kind, value string) {
	if kind != keys.Label || c.mode == expr.Disabled {
		return
	}
	if hint := expr.TemplateHint(value); hint != "" {
		c.report.add(field.Invalid(path, value, hint))
	}
}

// checkLiteral checks the parts of an entry that are literal.
func (c *compiler) checkLiteral(path *field.Path, a *assignment, name, value string, r *rule) *assignment {
	if !a.key.IsLiteral() {
		return a
	}
	a.raw = literal(a.key)
	verdict := checkName(r.keys, a.kind, a.raw)
	if verdict.OK() && a.value.IsLiteral() {
		a.literal = literal(a.value)
		verdict = checkValue(r.keys, a.kind, a.raw, a.literal)
		a.checked = verdict.OK()
	}
	a.full = verdict.Key
	if verdict.OK() {
		return a
	}
	switch {
	case a.raw != name || a.value.IsLiteral() && a.reference == "" && literal(a.value) != value:
		// Expressions are an extension of NFD, so the error is not dropped silently.
		c.report.add(field.Invalid(path, value, verdict.Message()))
	case verdict.Cause == keys.BadValue && a.kind == keys.Resource && passesNFD(r.keys, a):
		// NFD writes such quantities, and the API server then rejects the whole update of the node.
		c.report.add(field.Invalid(path, value, verdict.Message()))
	default:
		c.report.defect(path, "%s", verdict.Message())
	}
	r.rejected = append(r.rejected, Rejection{Kind: a.kind, Key: name, Reason: verdict.Message()})
	if verdict.Cause != keys.BadValue {
		return nil
	}
	a.void = true
	return a
}

// passesNFD reports whether NFD accepts a literal quantity that Assay rejects.
func passesNFD(p *keys.Policy, a *assignment) bool {
	nfd := *p
	nfd.Strict = true
	verdict := nfd.Resource(a.raw, a.literal)
	return verdict.OK()
}

func checkName(p *keys.Policy, kind keys.Kind, name string) keys.Verdict {
	switch kind {
	case keys.Label:
		return p.LabelName(name)
	case keys.Annotation:
		return p.AnnotationName(name)
	case keys.Resource:
		return p.ResourceName(name)
	case keys.Condition:
		return p.ConditionType(name)
	}
	return keys.Verdict{Key: name}
}

func checkValue(p *keys.Policy, kind keys.Kind, name, value string) keys.Verdict {
	switch kind {
	case keys.Label:
		return p.Label(name, value)
	case keys.Annotation:
		return p.Annotation(name, value)
	case keys.Resource:
		return p.Resource(name, value)
	case keys.Condition:
		return p.Condition(name, value)
	}
	return keys.Verdict{Key: name}
}

// maxShown is the maximum number of bytes of a value in an error.
const maxShown = 80

// finish computes the dependencies of a compiled rule, and its result if the result is constant.
func (c *compiler) finish(r *rule) {
	var reads []string
	note := func(m *match.Matcher) {
		if m == nil {
			return
		}
		reads = append(reads, m.Reads()...)
		names, closed := m.Elements(nfdv1alpha1.RuleMatchedFeature)
		r.matchedNames = append(r.matchedNames, names...)
		r.allMatched = r.allMatched || !closed
	}
	for _, m := range r.any {
		note(m)
	}
	note(r.features)
	r.texts(func(t *expr.Text) {
		if t.IsLiteral() {
			return
		}
		for _, name := range t.Features() {
			reads = append(reads, name, strings.ToLower(name))
			r.asks = append(r.asks, name)
			r.allMatched = r.allMatched || name == nfdv1alpha1.RuleMatchedFeature
		}
		r.readsVars = r.readsVars || len(t.Names()) > 0
		r.readsNode = r.readsNode || t.ReadsNode()
		r.readsElements = r.readsElements || t.ReadsMatched()
	})
	for _, t := range []*tmpl.Template{r.varsTemplate, r.labelsTemplate} {
		if t == nil {
			continue
		}
		r.readsNode = r.readsNode || t.ReadsNode()
		if t.ReadsVars() {
			r.readsVars, r.allMatched = true, true
			reads = append(reads, nfdv1alpha1.RuleMatchedFeature)
		}
	}
	for _, a := range r.actions {
		r.readsVars = r.readsVars || a.String() == "extend-var"
	}
	slices.Sort(reads)
	r.reads = slices.Compact(reads)
	if i, ok := slices.BinarySearch(r.reads, nfdv1alpha1.RuleMatchedFeature); ok {
		r.readsMatched, r.reads = true, slices.Delete(r.reads, i, i+1)
	}
	if r.isFixed() {
		r.fixed = r.always()
	}
}

// texts calls visit for each string of the rule that may contain expressions.
func (r *rule) texts(visit func(*expr.Text)) {
	for _, list := range [][]assignment{r.vars, r.labels, r.annotations, r.resources} {
		for i := range list {
			visit(list[i].key)
			if list[i].value != nil { // a void assignment may have no value
				visit(list[i].value)
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(r.templateReferences)) {
		visit(r.templateReferences[text].value)
	}
	for i := range r.taints {
		visit(r.taints[i].key)
		visit(r.taints[i].value)
	}
	for i := range r.nodeConditions {
		visit(r.nodeConditions[i].kind)
		for _, part := range r.nodeConditions[i].parts() {
			visit(part)
		}
	}
	for _, c := range r.conditions {
		if c != nil {
			c.Texts(visit)
		}
	}
	r.loop.Texts(visit)
	for _, a := range r.actions {
		if a != nil {
			a.Texts(visit)
		}
	}
}

// isFixed reports whether the rule gives the same outputs on every node where it matches.
func (r *rule) isFixed() bool {
	if r.loop != nil || r.varsTemplate != nil || r.labelsTemplate != nil || len(r.actions) > 0 {
		return false
	}
	for _, list := range [][]assignment{r.labels, r.annotations, r.resources} {
		for i := range list {
			if !list[i].checked && !list[i].void {
				return false
			}
		}
	}
	for i := range r.vars {
		if !r.vars[i].key.IsLiteral() || !r.vars[i].value.IsLiteral() {
			return false
		}
	}
	for i := range r.taints {
		if !r.taints[i].key.IsLiteral() || !r.taints[i].value.IsLiteral() {
			return false
		}
	}
	for i := range r.nodeConditions {
		if !r.nodeConditions[i].isLiteral() {
			return false
		}
	}
	return true
}

// always returns the result of a rule that gives the same outputs on every node where it matches.
func (r *rule) always() *result {
	res := &result{matched: true, rejected: r.rejected}
	for i := range r.vars {
		name, value := literal(r.vars[i].key), literal(r.vars[i].value)
		res.outputs = append(res.outputs, output{kind: keys.Var, key: name, raw: name, value: value, how: "vars"})
		if res.vars == nil {
			res.vars = map[string]expr.Value{}
		}
		res.vars[name] = expr.OfText(value)
	}
	for _, list := range [][]assignment{r.labels, r.annotations, r.resources} {
		for _, a := range list {
			res.outputs = append(res.outputs, a.output())
		}
	}
	for i := range r.nodeConditions {
		res.outputs = append(res.outputs, r.nodeConditions[i].output())
	}
	for _, t := range r.taints {
		res.taints = append(res.taints, corev1.Taint{Key: literal(t.key), Value: literal(t.value), Effect: t.effect})
	}
	return res
}
