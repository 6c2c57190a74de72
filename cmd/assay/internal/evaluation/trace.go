package evaluation

import (
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Options define which parts of a trace are shown.
type Options struct {
	Matched bool // show only rules that match
	Taints  bool
	All     bool // also show labels that no rule set
	Mask    rules.Masking
	// Desired decides how the Node differs from what rules give, as far as the cluster reports it. The Node is nil if it is not known.
	Desired desired.Settings
	Node    *corev1.Node
}

// Tracer prints an evaluation.
type Tracer struct {
	Options
	W    io.Writer
	S    printer.Style
	told map[rules.Ref]bool // rules that were already printed with their unmet requirements

	compared *desired.Comparison
}

// printTrace prints the result of each rule, and the outcome.
func printTrace(w io.Writer, traces []rules.RuleTrace, o *rules.Outcome, opt Options) {
	t := &Tracer{Options: opt, W: w, S: printer.StyleOf(w), told: map[rules.Ref]bool{}}
	left := 0
	for i := range traces {
		if opt.Matched && !traces[i].Matched && traces[i].Err == nil {
			left++
			continue
		}
		t.Rule(&traces[i])
		t.told[traces[i].Ref] = true
	}
	if left > 0 {
		fmt.Fprintf(w, "%s\n", t.S.Faint(fmt.Sprintf("(%s not shown: no match)", clip.Count(left, "rule"))))
	}
	t.Outcome(o)
}

// Rule prints a rule with its expressions.
func (t *Tracer) Rule(r *rules.RuleTrace) {
	word := t.S.Faint("SKIP ")
	switch {
	case r.Err != nil:
		word = t.S.Bad("ERROR")
	case r.Matched:
		word = t.S.Good("MATCH")
	}
	fmt.Fprintf(t.W, "%s  %s%s\n", word, t.S.Bold(clip.Printable(r.String())), From(r.Ref))
	if r.Skipped != "" {
		t.line(" ", r.Skipped)
		return
	}
	if r.Err != nil {
		t.line(t.S.Bad("!"), r.Err.Error())
	}
	if r.Partial != nil && !r.Sensitive {
		t.line(t.S.Warn("!"), "in part: "+r.Partial.Error())
	}
	if r.Sensitive {
		t.line(" ", "(the rule is sensitive: its conditions are not shown)")
	} else {
		t.terms(r)
	}
	for _, out := range r.Outputs {
		value := out.Value
		if r.Sensitive && out.Kind == keys.Var {
			value = rules.Hidden
		}
		text := fmt.Sprintf("%s %s=%s", out.Kind, out.Key, value)
		if out.Kind == keys.Taint {
			text = fmt.Sprintf("%s %s=%s", out.Kind, strings.TrimSuffix(out.Key, "="), value)
		}
		t.line(t.S.Good("+"), text+t.S.Faint("  ("+tracing.How(&out)+")"))
	}
	for _, no := range r.Rejected {
		t.line(t.S.Bad("-"), fmt.Sprintf("%s %s is not written: %s", no.Kind, no.Key, no.Reason))
	}
}

// From names the template that a rule is from, in parentheses.
func From(r rules.Ref) string {
	if r.Base == "" {
		return ""
	}
	return " (from " + r.Base + ")"
}

func (t *Tracer) terms(r *rules.RuleTrace) {
	rows := &printer.Table{}
	for _, l := range tracing.Lines(r, t.Mask) {
		rows.Add(t.mark(l.Held), l.Subject, l.Asked, l.Found)
	}
	rows.Print(t.W, "         ")
	if why := tracing.Why(r, t.Mask); why != "" {
		t.line(" ", t.S.Warn("because "+why))
	}
}

func (t *Tracer) mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

func (t *Tracer) line(mark, text string) {
	fmt.Fprintf(t.W, "         %s %s\n", mark, text)
}

// Outcome prints the outputs that are written to the node.
func (t *Tracer) Outcome(o *rules.Outcome) {
	fmt.Fprintf(t.W, "\n%s\n", t.S.Bold("On node "+clip.Printable(o.Node)+":"))
	if o.Failed != nil {
		fmt.Fprintf(t.W, "  nothing is written: %s failed: %s\n", clip.Printable(o.Failed.Ref.String()), clip.Printable(o.Failed.Message))
		t.asides(o)
		return
	}
	t.compared = t.Desired.Compare(t.Node, desired.Of(o))
	any := t.section(o, "labels", keys.Label, o.Labels())
	any = t.section(o, "annotations", keys.Annotation, o.Annotations()) || any
	any = t.section(o, "extended resources", keys.Resource, o.ExtendedResources()) || any
	any = t.section(o, "conditions", keys.Condition, o.NodeConditions()) || any
	if taints := o.Taints(); len(taints) > 0 && t.Taints {
		any = true
		rows := &printer.Table{}
		for _, taint := range taints {
			rows.Add(taint.ToString(), t.origin(o, keys.Taint, keys.TaintName(taint)))
		}
		if why := t.Desired.Withholding.Withholds(keys.Taint); why != "" {
			fmt.Fprintf(t.W, "  taints, not written on nodes: %s:\n", why)
		} else {
			fmt.Fprintln(t.W, "  taints, if the controller runs with --enable-taints:")
		}
		rows.Print(t.W, "    ")
	}
	if !any {
		fmt.Fprintln(t.W, "  nothing is written")
	}
	t.asides(o)
}

func (t *Tracer) section(o *rules.Outcome, title string, kind keys.Kind, values map[string]string) bool {
	if len(values) == 0 {
		return false
	}
	rows := &printer.Table{}
	asked := 0
	for _, key := range facts.SortedKeys(values) {
		if origin, _ := o.Origin(kind, key); origin.Object == "" && !t.All {
			asked++
			continue
		}
		rows.Add(key+"="+values[key], t.origin(o, kind, key))
	}
	fmt.Fprintf(t.W, "  %s:\n", title)
	rows.Print(t.W, "    ")
	if asked > 0 {
		fmt.Fprintln(t.W, t.S.Faint(fmt.Sprintf("    and %s that NodeFeatures request directly (--all shows them)", clip.Count(asked, "label"))))
	}
	return true
}

func (t *Tracer) origin(o *rules.Outcome, kind keys.Kind, key string) string {
	origin, ok := o.Origin(kind, key)
	if !ok {
		return ""
	}
	from := "from " + origin.Ref.String() + From(origin.Ref)
	if origin.Object == "" {
		from = "from " + origin.How
	}
	state, has, _ := t.compared.Given(kind, key)
	if text := state.Describe(has); text != "" {
		from += t.S.Warn("; " + clip.Printable(text))
	}
	return from
}

// asides prints outputs that are not written, and messages.
func (t *Tracer) asides(o *rules.Outcome) {
	for _, no := range o.Rejected() {
		if t.told[no.Ref] {
			continue
		}
		who := no.Ref.String()
		if who == "" {
			who = "a NodeFeature"
		}
		t.aside("not written", fmt.Sprintf("%s %s of %s: %s", no.Kind, no.Key, who, no.Reason))
	}
	for _, c := range o.Conflicts() {
		t.aside("conflict", fmt.Sprintf("%s %s: %s keeps it, %s does not get it", c.Kind, c.Key, c.Kept, c.Lost))
	}
	for _, m := range o.Messages() {
		t.aside("log "+m.Level, fmt.Sprintf("%s: %s", m.Ref, m.Text))
	}
	for _, e := range o.Events() {
		t.aside("event "+e.Type, fmt.Sprintf("%s: %s: %s", e.Ref, e.Reason, e.Message))
	}
}

func (t *Tracer) aside(title, text string) {
	fmt.Fprintf(t.W, "  %s: %s\n", t.S.Warn(title), clip.Printable(text))
}
