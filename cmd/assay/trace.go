package main

import (
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/condition"
	"github.com/assay-project/assay/rules/match"
)

// traceOptions say what of a trace is shown.
type traceOptions struct {
	matched bool // only rules that match
	taints  bool
	all     bool // labels that no rule gave, too
	mask    rules.Masking
	// withholding is what the controller does not write, as far as the cluster says.
	withholding rules.Withholding
}

// tracer prints an evaluation for people.
type tracer struct {
	traceOptions
	w    io.Writer
	s    style
	told map[rules.Ref]bool // rules that were shown, with what they did not get
}

// printTrace prints what became of each rule, and what all of them come to.
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
		fmt.Fprintf(w, "%s\n", t.s.faint(fmt.Sprintf("(%s not shown: no match)", plural(left, "rule"))))
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
		t.line(" ", "(the rule is sensitive: what it looks at is not shown)")
	} else {
		t.terms(r)
	}
	for _, out := range r.Outputs {
		value := out.Value
		if r.Sensitive && out.Kind == rules.KindVar {
			value = rules.Hidden
		}
		text := fmt.Sprintf("%s %s=%s", out.Kind, out.Key, value)
		if out.Kind == rules.KindTaint {
			text = fmt.Sprintf("%s %s=%s", out.Kind, strings.TrimSuffix(out.Key, "="), value)
		}
		t.line(t.s.good("+"), text+t.s.faint("  ("+out.How+")"))
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
	for i := range r.MatchFeatures {
		t.term(rows, &r.MatchFeatures[i], "")
	}
	for i, terms := range r.MatchAny {
		for j := range terms {
			t.term(rows, &terms[j], fmt.Sprintf("any of %d: ", i+1))
		}
	}
	for i := range r.Conditions {
		t.condition(rows, i, &r.Conditions[i])
	}
	rows.print(t.w, "         ")
	if !r.Matched && r.Err == nil && r.Why != "" && !t.hidden(r) {
		t.line(" ", t.s.warn("because "+r.Why))
	}
}

// hidden reports whether the reason could quote a value that is kept from people.
func (t *tracer) hidden(r *rules.RuleTrace) bool {
	for _, list := range append([][]match.TermTrace{r.MatchFeatures}, r.MatchAny...) {
		for i := range list {
			for _, x := range list[i].Expressions {
				if t.mask.Hides(x.Key) {
					return true
				}
			}
		}
	}
	return false
}

func (t *tracer) mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

func (t *tracer) term(rows *table, term *match.TermTrace, prefix string) {
	if !term.Found {
		rows.add(t.mark(false), prefix+term.Feature, "", "the node does not have this feature")
		return
	}
	if len(term.Expressions) == 0 && term.Name == nil {
		rows.add(t.mark(term.Held), prefix+term.Feature, "", "")
	}
	for i := range term.Expressions {
		t.expression(rows, prefix+term.Feature, &term.Expressions[i])
	}
	if term.Name != nil {
		t.expression(rows, prefix+term.Feature, term.Name)
	}
	if !term.Held && allHold(term) {
		rows.add(t.mark(false), prefix+term.Feature, "", term.Reason)
	}
}

func allHold(term *match.TermTrace) bool {
	for _, x := range term.Expressions {
		if !x.Held {
			return false
		}
	}
	return term.Name == nil || term.Name.Held
}

func (t *tracer) expression(rows *table, feature string, x *match.ExprTrace) {
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
	rows.add(t.mark(x.Held), feature, asked, found)
}

func (t *tracer) condition(rows *table, i int, c *condition.Trace) {
	name := fmt.Sprintf("conditions[%d]", i)
	if c.Error != "" {
		rows.add(t.mark(false), name, c.Op, c.Error)
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
		rows.add(t.mark(turn.OK), name, asked, strings.Join(parts, ", "))
	}
	if c.Multiple != "" && len(c.Turns) > 1 {
		rows.add(t.mark(c.OK), name, c.Multiple+" of them", "")
	}
}

func (t *tracer) line(mark, text string) {
	fmt.Fprintf(t.w, "         %s %s\n", mark, text)
}

// outcome prints what is written on the node.
func (t *tracer) outcome(o *rules.Outcome) {
	fmt.Fprintf(t.w, "\n%s\n", t.s.bold("On node "+printable(o.Node)+":"))
	if o.Failed != nil {
		fmt.Fprintf(t.w, "  nothing is written: %s says: %s\n", printable(o.Failed.Ref.String()), printable(o.Failed.Message))
		t.asides(o)
		return
	}
	any := t.section(o, "labels", rules.KindLabel, o.Labels())
	any = t.section(o, "annotations", rules.KindAnnotation, o.Annotations()) || any
	any = t.section(o, "extended resources", rules.KindResource, o.ExtendedResources()) || any
	if taints := o.Taints(); len(taints) > 0 && t.taints {
		any = true
		rows := &table{}
		for _, taint := range taints {
			rows.add(taintText(taint), t.origin(o, rules.KindTaint, taint.Key+":"+string(taint.Effect)))
		}
		if why := t.withholding.Withholds(rules.KindTaint); why != "" {
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

func taintText(t corev1.Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + string(t.Effect)
}

func (t *tracer) section(o *rules.Outcome, title string, kind rules.Kind, values map[string]string) bool {
	if len(values) == 0 {
		return false
	}
	rows := &table{}
	asked := 0
	for _, key := range sortedKeys(values) {
		if origin, _ := o.Origin(kind, key); origin.Object == "" && !t.all {
			asked++
			continue
		}
		rows.add(key+"="+values[key], t.origin(o, kind, key))
	}
	fmt.Fprintf(t.w, "  %s:\n", title)
	rows.print(t.w, "    ")
	if asked > 0 {
		fmt.Fprintln(t.w, t.s.faint(fmt.Sprintf("    and %s that NodeFeatures ask for directly (--all shows them)", plural(asked, "label"))))
	}
	return true
}

func (t *tracer) origin(o *rules.Outcome, kind rules.Kind, key string) string {
	origin, ok := o.Origin(kind, key)
	if !ok {
		return ""
	}
	if origin.Object == "" {
		return "from " + origin.How
	}
	return "from " + origin.Ref.String() + from(origin.Ref)
}

// asides are what is not written, and what is said besides.
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
