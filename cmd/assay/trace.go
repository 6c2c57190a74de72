package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-project/assay/cmd/assay/tracing"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// traceOptions define which parts of a trace are shown.
type traceOptions struct {
	matched bool // show only rules that match
	taints  bool
	all     bool // also show labels that no rule set
	mask    rules.Masking
	// withholding is what the controller does not write, as far as the cluster reports it.
	withholding rules.Withholding
}

// tracer prints an evaluation.
type tracer struct {
	traceOptions
	w    io.Writer
	s    style
	told map[rules.Ref]bool // rules that were already printed with their unmet requirements
}

// printTrace prints the result of each rule, and the outcome.
func printTrace(w io.Writer, traces []rules.RuleTrace, o *rules.Outcome, opt traceOptions) {
	t := &tracer{traceOptions: opt, w: w, s: styleOf(w), told: map[rules.Ref]bool{}}
	left := 0
	for i := range traces {
		if opt.matched && !traces[i].Matched && traces[i].Err == nil {
			left++
			continue
		}
		t.rule(&traces[i])
		t.told[traces[i].Ref] = true
	}
	if left > 0 {
		fmt.Fprintf(w, "%s\n", t.s.faint(fmt.Sprintf("(%s not shown: no match)", clip.Count(left, "rule"))))
	}
	t.outcome(o)
}

func (t *tracer) rule(r *rules.RuleTrace) {
	word := t.s.faint("SKIP ")
	switch {
	case r.Err != nil:
		word = t.s.bad("ERROR")
	case r.Matched:
		word = t.s.good("MATCH")
	}
	fmt.Fprintf(t.w, "%s  %s%s\n", word, t.s.bold(printable(r.String())), from(r.Ref))
	if r.Skipped != "" {
		t.line(" ", r.Skipped)
		return
	}
	if r.Err != nil {
		t.line(t.s.bad("!"), r.Err.Error())
	}
	if r.Partial != nil && !r.Sensitive {
		t.line(t.s.warn("!"), "in part: "+r.Partial.Error())
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
		t.line(t.s.good("+"), text+t.s.faint("  ("+tracing.How(&out)+")"))
	}
	for _, no := range r.Rejected {
		t.line(t.s.bad("-"), fmt.Sprintf("%s %s is not written: %s", no.Kind, no.Key, no.Reason))
	}
}

func from(r rules.Ref) string {
	if r.Base == "" {
		return ""
	}
	return " (from " + r.Base + ")"
}

func (t *tracer) terms(r *rules.RuleTrace) {
	rows := &table{}
	for _, l := range tracing.Lines(r, t.mask) {
		rows.add(t.mark(l.Held), l.Subject, l.Asked, l.Found)
	}
	rows.print(t.w, "         ")
	if why := tracing.Why(r, t.mask); why != "" {
		t.line(" ", t.s.warn("because "+why))
	}
}

func (t *tracer) mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

func (t *tracer) line(mark, text string) {
	fmt.Fprintf(t.w, "         %s %s\n", mark, text)
}

// outcome prints the outputs that are written to the node.
func (t *tracer) outcome(o *rules.Outcome) {
	fmt.Fprintf(t.w, "\n%s\n", t.s.bold("On node "+printable(o.Node)+":"))
	if o.Failed != nil {
		fmt.Fprintf(t.w, "  nothing is written: %s failed: %s\n", printable(o.Failed.Ref.String()), printable(o.Failed.Message))
		t.asides(o)
		return
	}
	any := t.section(o, "labels", keys.Label, o.Labels())
	any = t.section(o, "annotations", keys.Annotation, o.Annotations()) || any
	any = t.section(o, "extended resources", keys.Resource, o.ExtendedResources()) || any
	any = t.section(o, "conditions", keys.Condition, o.NodeConditions()) || any
	if taints := o.Taints(); len(taints) > 0 && t.taints {
		any = true
		rows := &table{}
		for _, taint := range taints {
			rows.add(taint.ToString(), t.origin(o, keys.Taint, keys.TaintName(taint)))
		}
		if why := t.withholding.Withholds(keys.Taint); why != "" {
			fmt.Fprintf(t.w, "  taints, not written on nodes: %s:\n", why)
		} else {
			fmt.Fprintln(t.w, "  taints, if the controller runs with --enable-taints:")
		}
		rows.print(t.w, "    ")
	}
	if !any {
		fmt.Fprintln(t.w, "  nothing is written")
	}
	t.asides(o)
}

func (t *tracer) section(o *rules.Outcome, title string, kind keys.Kind, values map[string]string) bool {
	if len(values) == 0 {
		return false
	}
	rows := &table{}
	asked := 0
	for _, key := range facts.SortedKeys(values) {
		if origin, _ := o.Origin(kind, key); origin.Object == "" && !t.all {
			asked++
			continue
		}
		rows.add(key+"="+values[key], t.origin(o, kind, key))
	}
	fmt.Fprintf(t.w, "  %s:\n", title)
	rows.print(t.w, "    ")
	if asked > 0 {
		fmt.Fprintln(t.w, t.s.faint(fmt.Sprintf("    and %s that NodeFeatures request directly (--all shows them)", clip.Count(asked, "label"))))
	}
	return true
}

func (t *tracer) origin(o *rules.Outcome, kind keys.Kind, key string) string {
	origin, ok := o.Origin(kind, key)
	if !ok {
		return ""
	}
	if origin.Object == "" {
		return "from " + origin.How
	}
	return "from " + origin.Ref.String() + from(origin.Ref)
}

// asides prints outputs that are not written, and messages.
func (t *tracer) asides(o *rules.Outcome) {
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

func (t *tracer) aside(title, text string) {
	fmt.Fprintf(t.w, "  %s: %s\n", t.s.warn(title), printable(text))
}
