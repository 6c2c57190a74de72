package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

// filterHelp is appended to errors in filters.
const filterHelp = `write for example: cpu.model.vendor_id = Intel and kernel.version.major >= 6, or label topology.kubernetes.io/zone In eu-1, eu-2`

const (
	// maxFilter is the maximum size of a filter in bytes. Links on a page repeat it.
	maxFilter = 4 << 10
	// maxTerms is the maximum number of terms of a filter. Each can need an evaluation of all nodes.
	maxTerms = 64
)

// clause is a filter or a part of it: a term, or other clauses joined by and, or, not.
type clause struct {
	op string // "" for a term
	of []*clause
	*term
}

// term is a condition on a node: a requirement, or a test.
type term struct {
	// from and to are its position in the filter, name the name of the feature or label.
	from, to   int
	name       word
	label      bool
	op         nfdv1alpha1.MatchOp
	values     []word
	required   *assayv1alpha1.Requirement
	compiled   *requirements.Requirements
	test       func(d *data, node int) bool
	searchedIn bool // it searches in names and labels
}

// word is a word of a filter.
type word struct {
	text     string
	from, to int
	quoted   bool
}

// compileFilter compiles a filter: terms, or a requirement in YAML. It returns nil for an empty filter.
func compileFilter(d *data, text string) (*clause, error) {
	if len(text) > maxFilter {
		return nil, fmt.Errorf("the filter has %d bytes; at most %d are allowed", len(text), maxFilter)
	}
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, nil
	}
	if isYAML(trimmed) {
		if strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "[") {
			trimmed = "matchFeatures:\n" + trimmed
		}
		reqs, err := compileRequirement(trimmed, d.Known.Rules)
		return &clause{term: &term{compiled: reqs, to: len(text)}}, err
	}
	p := &filterParser{text: text, d: d}
	c, err := p.or()
	if err == nil && p.peek() != 0 {
		err = fmt.Errorf("unexpected %q; join terms with and or or", p.text[p.at:])
	}
	if err != nil {
		return nil, err
	}
	return c, c.compile(d)
}

// isYAML reports whether a filter is a requirement in YAML.
func isYAML(text string) bool {
	return slices.ContainsFunc([]string{"matchFeatures:", "matchAny:", "conditions:", "{", "- ", "["}, func(prefix string) bool {
		return strings.HasPrefix(text, prefix)
	})
}

// compile compiles the requirements of all terms.
func (c *clause) compile(d *data) error {
	for _, part := range c.of {
		if err := part.compile(d); err != nil {
			return err
		}
	}
	if c.term == nil || c.required == nil {
		return nil
	}
	var err error
	c.compiled, err = compileTerms(d, c.required)
	return err
}

func compileTerms(d *data, required *assayv1alpha1.Requirement) (*requirements.Requirements, error) {
	text, err := yaml.Marshal(required)
	if err != nil {
		return nil, err
	}
	return compileRequirement(string(text), d.Known.Rules)
}

func compileRequirement(source string, opt rules.Options) (*requirements.Requirements, error) {
	reqs, report := requirements.Annotations(map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: source}, field.NewPath("filter"), opt)
	if !report.OK() {
		var list []error
		for _, e := range report.Errors {
			list = append(list, errors.New(review.Text(e)))
		}
		return nil, errors.Join(list...)
	}
	return reqs, nil
}

// terms returns the terms of a clause in the order of the text.
func (c *clause) terms() []*term {
	if c.term != nil {
		return []*term{c.term}
	}
	var out []*term
	for _, part := range c.of {
		out = append(out, part.terms()...)
	}
	return out
}

// joined returns the requirements of a clause as one, or nil if other terms are among them: the nearest node is known for requirements.
func (c *clause) joined(d *data) *requirements.Requirements {
	if c.term != nil {
		return c.compiled
	}
	if c.op != "and" {
		return nil
	}
	all := &assayv1alpha1.Requirement{}
	for _, part := range c.of {
		if part.term == nil || part.required == nil {
			return nil
		}
		all.MatchFeatures = append(all.MatchFeatures, part.required.MatchFeatures...)
		all.Conditions = append(all.Conditions, part.required.Conditions...)
	}
	reqs, err := compileTerms(d, all)
	if err != nil {
		return nil
	}
	return reqs
}

// selects returns for each node whether the clause selects it.
func (c *clause) selects(d *data) []bool {
	out := make([]bool, len(d.Nodes))
	switch {
	case c.term != nil && c.compiled != nil:
		for _, name := range d.fleet().Query(c.compiled, len(d.Nodes)).Sample {
			out[d.place[name]] = true
		}
	case c.term != nil:
		input.Each(len(out), func(i int) { out[i] = c.test(d, i) })
	case c.op == "not":
		for i, selected := range c.of[0].selects(d) {
			out[i] = !selected
		}
	default:
		copy(out, c.of[0].selects(d))
		for _, part := range c.of[1:] {
			for i, selected := range part.selects(d) {
				if c.op == "and" {
					out[i] = out[i] && selected
				} else {
					out[i] = out[i] || selected
				}
			}
		}
	}
	return out
}

// resolve decides what the name of a term is.
func (p *filterParser) resolve(t *term, subject string, alone bool) (err error) {
	name := t.name.text
	feature, _, _ := column.Split(name)
	switch {
	case subject == "rule":
		return t.testRule(p.d, alone)
	case subject == "label":
		return t.requireLabel()
	case !t.name.quoted && stateOf(name) != nil:
		return t.testState(stateOf(name))
	case !t.name.quoted && name == "name":
		return t.testName()
	case alone && (t.name.quoted || !p.d.hasFeature(feature)):
		t.search()
		return nil
	case !p.d.hasFeature(feature) && p.d.hasLabel(name):
		return t.requireLabel()
	}
	return t.requireFeature(alone)
}

func (t *term) operands() []string {
	out := make([]string, len(t.values))
	for i, w := range t.values {
		out[i] = w.text
	}
	return out
}

func (t *term) requireFeature(alone bool) error {
	name := t.name.text
	feature, element, ok := column.Split(name)
	if !strings.Contains(feature, ".") {
		return fmt.Errorf("invalid name %q: a feature is for example cpu.model, an element cpu.model.vendor_id, and a label label %s; %s", name, name, filterHelp)
	}
	m := nfdv1alpha1.FeatureMatcherTerm{Feature: feature}
	if ok {
		m.MatchExpressions = &nfdv1alpha1.MatchExpressionSet{element: {Op: t.op, Value: t.operands()}}
	} else if !alone {
		return fmt.Errorf("%s is a feature: name one of its elements to compare, such as %s.NAME %s", feature, feature, t.op)
	}
	t.required = &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{m}}
	return nil
}

func (t *term) requireLabel() error {
	t.label = true
	c, err := labelCondition(t.name.text, t.op, t.operands())
	t.required = &assayv1alpha1.Requirement{Conditions: []nfdv1alpha1.Condition{c}}
	return err
}

// search selects nodes whose name or a label, as KEY=VALUE, contains the name.
func (t *term) search() {
	t.searchedIn = true
	text := t.name.text
	t.test = func(d *data, i int) bool {
		n := &d.Nodes[i]
		if strings.Contains(n.Input.Node.Name, strings.ToLower(text)) || strings.Contains(n.Input.Node.Name, text) {
			return true
		}
		for key, value := range n.labels() {
			if strings.Contains(key, text) || strings.Contains(value, text) || strings.Contains(text, "=") && strings.Contains(key+"="+value, text) {
				return true
			}
		}
		return false
	}
}

// testRule selects nodes that a rule of an object matches.
func (t *term) testRule(d *data, alone bool) error {
	if !alone {
		return fmt.Errorf("a term on a rule takes only its name; write for example: rule %s", t.name.text)
	}
	name := t.name.text
	if !slices.ContainsFunc(d.Rules, func(r Rule) bool { return r.Object.Name == name }) {
		return fmt.Errorf("rules %q not found%s", name, didYouMean(name, d.ruleNames()))
	}
	var places []int
	for i, r := range d.Program.Rules() {
		if r.Object == name {
			places = append(places, i)
		}
	}
	t.test = func(d *data, i int) bool { return slices.ContainsFunc(places, d.verdict(i).matches) }
	return nil
}

// testSelector selects nodes by a label selector, as kubectl takes it: one word, or in double or single quotes.
func (t *term) testSelector(p *filterParser) (err error) {
	switch p.peek() {
	case 0:
		return errors.New("a label selector is missing after -l; write for example: -l 'zone in (eu-1, eu-2), !spot'")
	case '"':
		t.name, err = p.quoted()
	case '\'':
		text, _, closed := strings.Cut(p.text[p.at+1:], "'")
		if !closed {
			return fmt.Errorf("a closing quote is missing after %s", p.text[p.at:])
		}
		t.name = word{text, p.at, p.at + len(text) + 2, true}
		p.at = t.name.to
	default:
		text := p.bare(" \t\r\n()")
		t.name = word{text, p.at, p.at + len(text), false}
		p.at = t.name.to
	}
	if err != nil {
		return err
	}
	t.to = p.at
	selector, err := labels.Parse(t.name.text)
	if err != nil {
		return fmt.Errorf("invalid label selector %q: %w; put one with blanks in single quotes", t.name.text, err)
	}
	t.test = func(d *data, i int) bool { return selector.Matches(labels.Set(d.Nodes[i].labels())) }
	return nil
}

// testName compares the names of nodes.
func (t *term) testName() error {
	values := t.operands()
	switch t.op {
	case nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn:
		want := t.op == nfdv1alpha1.MatchIn
		t.test = func(d *data, i int) bool { return slices.Contains(values, d.Nodes[i].Input.Node.Name) == want }
	case nfdv1alpha1.MatchInRegexp:
		if len(values) != 1 {
			return fmt.Errorf("operator %s of name takes 1 value, found %d", t.op, len(values))
		}
		pattern, err := regexp.Compile(values[0])
		if err != nil {
			return fmt.Errorf("invalid regular expression %q: %w", values[0], err)
		}
		t.test = func(d *data, i int) bool { return pattern.MatchString(d.Nodes[i].Input.Node.Name) }
	default:
		return fmt.Errorf("invalid operator %q for name: use In, NotIn or InRegexp", t.op)
	}
	return nil
}

// labelKey matches valid label keys. A key becomes part of an expression.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// labelCondition returns a condition on a label of the Node.
func labelCondition(key string, op nfdv1alpha1.MatchOp, values []string) (c nfdv1alpha1.Condition, err error) {
	if !labelKey.MatchString(key) {
		return c, fmt.Errorf("invalid label key %q", key)
	}
	value := `{node.labels["` + key + `"]}`
	args := map[string]any{"value": value}
	count := 0
	switch op {
	case nfdv1alpha1.MatchExists:
		c.Op = "!is-none"
	case nfdv1alpha1.MatchDoesNotExist:
		c.Op = "is-none"
	case nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn:
		c.Op, args["values"], count = "one-of", values, max(1, len(values))
		c.Invert = op == nfdv1alpha1.MatchNotIn
	case nfdv1alpha1.MatchInRegexp:
		c.Op, count = "contains", 1
		if len(values) == 1 {
			args["regex"] = values[0]
		}
	case nfdv1alpha1.MatchGt, nfdv1alpha1.MatchLt:
		c.Op, count = strings.ToLower(string(op)), 1
		args = map[string]any{"values": append([]string{value}, values...)}
	default:
		return c, fmt.Errorf("invalid operator %q for a label: use Exists, DoesNotExist, In, NotIn, InRegexp, Gt or Lt", op)
	}
	if len(values) != count {
		return c, fmt.Errorf("operator %s of label %s takes %d values, found %d", op, key, count, len(values))
	}
	c.Args.Raw, err = json.Marshal(args)
	return c, err
}

// quoteWord quotes a name or value as one word of a filter.
func quoteWord(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\r\n,\"()=!<>~") || strconv.Quote(value) != `"`+value+`"` ||
		slices.ContainsFunc(keywords, func(k string) bool { return strings.EqualFold(value, k) }) {
		return strconv.Quote(value)
	}
	return value
}
