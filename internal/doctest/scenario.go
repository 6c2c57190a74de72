package doctest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// scenario is one example: rules and a node.
type scenario struct {
	objects  []nfdv1alpha1.NodeFeatureRule
	features nfdv1alpha1.Features
	node     rules.Node
	strict   bool
	done     bool // the page shows the outcome
	reported bool // the page shows the report
}

func newScenario() *scenario { return &scenario{node: rules.Node{Name: "node-1"}} }

// addRules adds a block of NodeFeatureRules, or of a list of rules.
func (s *scenario) addRules(text string) error {
	if s.done {
		s.objects, s.done, s.reported = nil, false, false
	}
	for _, doc := range strings.Split("\n"+text, "\n---") {
		var obj nfdv1alpha1.NodeFeatureRule
		if isList(doc) {
			obj.Name = "example"
			if err := yaml.UnmarshalStrict([]byte(doc), &obj.Spec.Rules); err != nil {
				return err
			}
		} else if err := yaml.UnmarshalStrict([]byte(doc), &obj); err != nil {
			return err
		}
		s.objects = append(s.objects, obj)
	}
	return nil
}

// isList reports whether the first line that is not a comment starts a list.
func isList(doc string) bool {
	for line := range strings.Lines(doc) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return strings.HasPrefix(line, "- ")
		}
	}
	return false
}

func (s *scenario) setFacts(text, node string) error {
	s.features = nfdv1alpha1.Features{}
	if node != "" {
		s.node.Name = node
	}
	return yaml.UnmarshalStrict([]byte(text), &s.features)
}

func (s *scenario) setNode(text string) error {
	var metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &metadata); err != nil {
		return err
	}
	s.node = rules.Node{Name: metadata.Name, Labels: metadata.Labels, Annotations: metadata.Annotations}
	return nil
}

func (s *scenario) options() rules.Options {
	opt := rules.Options{Strict: s.strict}
	opt.Keys.Strict = s.strict
	return opt
}

// report returns the errors and warnings of Compile, one per line.
func (s *scenario) report() string {
	var b strings.Builder
	for i := range s.objects {
		_, r := rules.Compile(&s.objects[i], s.options())
		for _, err := range r.Errors {
			b.WriteString("error: " + err.Error() + "\n")
		}
		for _, w := range r.Warnings {
			b.WriteString("warning: " + w.String() + "\n")
		}
	}
	return b.String()
}

func (s *scenario) eval() *rules.Outcome {
	var sets []*rules.RuleSet
	for i := range s.objects {
		set, _ := rules.Compile(&s.objects[i], s.options())
		sets = append(sets, set)
	}
	return rules.Link(s.options(), sets...).Eval(rules.Input{Node: s.node, Facts: facts.New(&s.features, nil)})
}

// outcome is the compact form of an outcome on a page.
type outcome struct {
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	ExtendedResources map[string]string `json:"extendedResources,omitempty"`
	Taints            []string          `json:"taints,omitempty"`
	NodeConditions    map[string]string `json:"nodeConditions,omitempty"`
	Failed            string            `json:"failed,omitempty"`
	NotWritten        []string          `json:"notWritten,omitempty"`
	Errors            []string          `json:"errors,omitempty"`
	Conflicts         []string          `json:"conflicts,omitempty"`
	Events            []string          `json:"events,omitempty"`
	// Only included if the page shows them.
	Vars    map[string]string `json:"vars,omitempty"`
	Matched []string          `json:"matched,omitempty"`
	Skipped []string          `json:"skipped,omitempty"`
	Log     []string          `json:"log,omitempty"`
}

// optional lists the fields that a page may omit.
var optional = []string{"vars", "matched", "skipped", "log"}

// show formats an outcome with the optional fields that the page shows.
func show(o *rules.Outcome, page string) (string, error) {
	out := outcome{
		Labels: o.Labels(), Annotations: o.Annotations(), ExtendedResources: o.ExtendedResources(), Vars: o.Vars(), NodeConditions: o.NodeConditions(),
	}
	for _, t := range o.Taints() {
		out.Taints = append(out.Taints, t.ToString())
	}
	if o.Failed != nil {
		out.Failed = o.Failed.String() + ": " + o.Failed.Message
	}
	for _, r := range o.Rejected() {
		out.NotWritten = append(out.NotWritten, fmt.Sprintf("%s %s: %s", r.Kind, r.Key, r.Reason))
	}
	for _, c := range o.Conflicts() {
		out.Conflicts = append(out.Conflicts, fmt.Sprintf("%s %s: %s keeps it, %s loses it", c.Kind, c.Key, c.Kept, c.Lost))
	}
	for _, e := range o.Events() {
		out.Events = append(out.Events, e.Type+" "+e.Reason+": "+e.Message)
	}
	for _, m := range o.Messages() {
		out.Log = append(out.Log, m.Level+": "+m.Text)
	}
	for _, r := range o.Rules() {
		switch {
		case r.Matched:
			out.Matched = append(out.Matched, r.String())
		case r.Skipped != "":
			out.Skipped = append(out.Skipped, r.String()+": "+r.Skipped)
		case r.Err != nil:
			out.Errors = append(out.Errors, r.String()+": "+r.Err.Error())
		}
	}
	return out.print(page)
}

func (o *outcome) print(page string) (string, error) {
	data, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	var members, shown map[string]any
	if err := yaml.Unmarshal(data, &members); err != nil {
		return "", err
	}
	if err := yaml.Unmarshal([]byte(page), &shown); err != nil {
		return "", err
	}
	for _, name := range optional {
		if _, ok := shown[name]; !ok {
			delete(members, name)
		}
	}
	text, err := yaml.Marshal(members)
	return string(bytes.TrimSpace(text)), err
}

// expression evaluates a string as the value of an annotation or of a label.
func expression(text, kind string, s *scenario) string {
	rule := nfdv1alpha1.Rule{Name: "x", Vars: map[string]string{"rack": "3", "unit": "07", "serial": "000123"}}
	values := map[string]string{"x": text}
	if kind == "label" {
		rule.Labels = values
	} else {
		rule.Annotations = values
	}
	s.objects = []nfdv1alpha1.NodeFeatureRule{{Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}}}
	_, report := rules.Compile(&s.objects[0], s.options())
	if len(report.Errors) > 0 {
		return "refused: " + report.Errors[0].Detail
	}
	o := s.eval()
	for _, r := range o.Rejected() {
		return "not written: " + r.Reason
	}
	for _, r := range o.Rules() {
		if r.Err != nil {
			return "error: " + r.Err.Error()
		}
	}
	for _, m := range []map[string]string{o.Labels(), o.Annotations()} {
		for _, value := range m {
			return "`" + value + "`"
		}
	}
	return ""
}

// quiet lists the types of YAML blocks that are not evaluated.
var quiet = []string{"example"}

func known(kind string) bool { return slices.Contains(quiet, kind) }
