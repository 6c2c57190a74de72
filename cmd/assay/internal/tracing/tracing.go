// Package tracing formats the trace of a rule as lines.
package tracing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// Line is one expression or condition of a rule with the facts of the node.
type Line struct {
	Held bool `json:"met"`
	// Subject is the feature or the condition, Asked the requirement of the rule, Found the value on the node.
	Subject string `json:"subject"`
	Asked   string `json:"asked,omitempty"`
	Found   string `json:"found,omitempty"`
}

// Lines returns the matchers and conditions of a rule in order. It replaces values that mask hides. A sensitive rule has no lines.
func Lines(r *rules.RuleTrace, mask rules.Masking) []Line {
	if r.Sensitive {
		return nil
	}
	t := &tracer{mask: mask}
	for i := range r.MatchFeatures {
		t.term(&r.MatchFeatures[i], "")
	}
	for i, terms := range r.MatchAny {
		for j := range terms {
			t.term(&terms[j], fmt.Sprintf("any of %d: ", i+1))
		}
	}
	for i := range r.Conditions {
		t.condition(i, &r.Conditions[i])
	}
	return t.lines
}

// Why returns the reason why a rule does not match. It returns "" if the rule matches or failed, or if the reason could contain a
// value that mask hides.
func Why(r *rules.RuleTrace, mask rules.Masking) string {
	if r.Matched || r.Err != nil || hidden(r, mask) {
		return ""
	}
	return r.Why
}

// Skipped is the result of Lacking for a rule that is not evaluated on the node. It is larger than for any other rule.
const Skipped = 1000

// Lacking returns the number of expressions and conditions that the node does not meet, to sort nodes and rules.
func Lacking(r *rules.RuleTrace) int {
	if r.Skipped != "" {
		return Skipped
	}
	n := 0
	for i := range r.MatchFeatures {
		term := &r.MatchFeatures[i]
		if term.Held {
			continue
		}
		n++
		for _, x := range term.Expressions {
			if !x.Held {
				n++
			}
		}
	}
	for _, c := range r.Conditions {
		if !c.OK {
			n++
		}
	}
	return n
}

// Naming returns the rules that give a key or whose source names it, and those that compute the names of their outputs and can write any. The
// key is one of the names, of one of the kinds. The name of a taint may omit its effect.
func Naming(p *rules.Program, traces []rules.RuleTrace, kinds []keys.Kind, names ...string) (named, computed []*rules.RuleTrace) {
	best := make([]rules.Mention, len(traces))
	for _, kind := range kinds {
		for _, name := range names {
			spellings := []string{name}
			if kind == keys.Taint && !strings.Contains(name, ":") {
				spellings = []string{name + ":NoSchedule", name + ":PreferNoSchedule", name + ":NoExecute"}
			}
			for _, key := range spellings {
				for i, m := range p.Mentions(kind, key) {
					best[i] = max(best[i], m)
				}
			}
		}
	}
	for i := range traces {
		t := &traces[i]
		gives := func(o rules.TracedOutput) bool {
			return slices.Contains(kinds, o.Kind) && slices.Contains(names, o.Key)
		}
		switch {
		case best[i] == rules.Named || slices.ContainsFunc(t.Outputs, gives):
			named = append(named, t)
		case best[i] == rules.Computed:
			computed = append(computed, t)
		}
	}
	return named, computed
}

// hidden reports whether the reason could contain a hidden value.
func hidden(r *rules.RuleTrace, mask rules.Masking) bool {
	for _, list := range append([][]rules.TermTrace{r.MatchFeatures}, r.MatchAny...) {
		for i := range list {
			for _, x := range list[i].Expressions {
				if mask.Hides(x.Key) {
					return true
				}
			}
		}
	}
	return false
}

// tracer collects lines.
type tracer struct {
	mask  rules.Masking
	lines []Line
}

func (t *tracer) add(held bool, subject, asked, found string) {
	t.lines = append(t.lines, Line{held, subject, asked, found})
}

func (t *tracer) term(term *rules.TermTrace, prefix string) {
	subject := prefix + term.Feature
	if !term.Found {
		t.add(false, subject, "", "the node does not have this feature")
		return
	}
	if len(term.Expressions) == 0 && term.Name == nil {
		t.add(term.Held, subject, "", "")
	}
	for i := range term.Expressions {
		t.expression(subject, &term.Expressions[i])
	}
	if term.Name != nil {
		t.expression(subject, term.Name)
	}
	if !term.Held && allHold(term) {
		t.add(false, subject, "", term.Reason)
	}
}

func allHold(term *rules.TermTrace) bool {
	for _, x := range term.Expressions {
		if !x.Held {
			return false
		}
	}
	return term.Name == nil || term.Name.Held
}

func (t *tracer) expression(subject string, x *rules.ExpressionTrace) {
	key := x.Key
	if key == "" {
		key = "name"
	}
	asked := key + " " + x.Op
	if len(x.Value) > 0 {
		asked += " " + strings.Join(x.Value, ", ")
	}
	if x.Type != "" {
		asked += " (" + x.Type + ")"
	}
	var found string
	switch {
	case x.Error != "":
		found = x.Error
	case t.mask.Hides(x.Key) && x.Exists:
		found = "found " + rules.Hidden
	case len(x.Found) > 0:
		found = "found " + strings.Join(x.Found, ", ")
		if x.Instances > 0 && x.Key != "" {
			found += fmt.Sprintf("; holds for %d of %d", x.Holding, x.Instances)
		}
	case x.Exists:
		found = "found"
	default:
		found = "not there"
	}
	t.add(x.Held, subject, asked, found)
}

func (t *tracer) condition(i int, c *rules.ConditionTrace) {
	name := fmt.Sprintf("conditions[%d]", i)
	if c.Error != "" {
		t.add(false, name, c.Op, c.Error)
		return
	}
	for _, turn := range c.Turns {
		var parts []string
		for _, a := range turn.Args {
			parts = append(parts, a.Name+" = "+a.Value.String())
		}
		asked := c.Op
		if turn.Item != nil {
			asked += " for " + turn.Item.String()
		}
		t.add(turn.OK, name, asked, strings.Join(parts, ", "))
	}
	if c.Multiple != "" && len(c.Turns) > 1 {
		t.add(c.OK, name, c.Multiple+" of them", "")
	}
}

// How returns where an output comes from: the field of the rule, and what its value was computed from.
func How(o *rules.TracedOutput) string {
	if len(o.Reads) == 0 {
		return o.How
	}
	reads := make([]string, len(o.Reads))
	for i, r := range o.Reads {
		reads[i] = r.String()
	}
	return o.How + ", from " + strings.Join(reads, ", ")
}
