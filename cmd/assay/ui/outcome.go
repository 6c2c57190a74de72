package ui

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/tracing"
	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// outcome holds the outputs of rules for one node.
type outcome struct {
	// Failed is the reason why nothing is written, or "".
	Failed string
	Groups []outputs
	// Asked are labels that NodeFeatures request directly.
	Asked   []output
	Missing []missing
	Notes   []string
}

// Empty reports whether rules write nothing.
func (o *outcome) Empty() bool { return len(o.Groups) == 0 && o.Failed == "" }

// outputs are the outputs of one kind.
type outputs struct {
	Title string
	Rows  []output
}

// output is a key that is written.
type output struct {
	Key, Value string
	source
	// Differs is the reason why the Node does not have the output, or "".
	Differs string
}

// missing is an output that is not written.
type missing struct {
	source
	What, Key, Why string
}

// source is the rule that an output comes from.
type source struct {
	// Object is empty if a NodeFeature requests the label.
	Object, Rule string
	// Linked is set if the object has a page.
	Linked bool
}

// kinds are the kinds of outputs on nodes, in page order.
var kinds = []struct {
	kind  keys.Kind
	title string
}{
	{keys.Label, "Labels"}, {keys.Annotation, "Annotations"}, {keys.Resource, "Extended resources"}, {keys.Taint, "Taints"},
	{keys.Condition, "Conditions"},
}

// comparison holds what an outcome is compared with.
type comparison struct {
	node   *corev1.Node // nil if the Node is unknown
	keeps  rules.Withholding
	linked bool // whether rules have pages
}

func (c *comparison) source(r rules.Ref) source { return source{r.Object, r.Rule, c.linked} }

// newOutcome returns the outputs of rules for a node.
func newOutcome(o *rules.Outcome, c comparison) outcome {
	var out outcome
	if o.Failed != nil {
		out.Failed = fmt.Sprintf("Rule %s prevents all changes to this node: %s", o.Failed.Ref, o.Failed.Message)
	} else {
		for _, k := range kinds {
			rows, asked := c.outputs(o, k.kind)
			if out.Asked = append(out.Asked, asked...); len(rows) > 0 {
				out.Groups = append(out.Groups, outputs{k.title, rows})
			}
		}
	}
	for _, no := range o.Rejected() {
		out.Missing = append(out.Missing, missing{c.source(no.Ref), string(no.Kind), no.Key, no.Reason})
	}
	for _, x := range o.Conflicts() {
		out.Missing = append(out.Missing, missing{c.source(x.Lost), string(x.Kind), x.Key, "conflict: " + x.Kept.String() + " sets another value and wins"})
	}
	for _, m := range o.Messages() {
		out.Notes = append(out.Notes, fmt.Sprintf("%s logs (%s): %s", m.Ref, m.Level, m.Text))
	}
	for _, e := range o.Events() {
		out.Notes = append(out.Notes, fmt.Sprintf("%s records an Event (%s, %s): %s", e.Ref, e.Type, e.Reason, e.Message))
	}
	return out
}

// outputs returns the outputs of one kind: those of rules, and those that NodeFeatures request.
func (c *comparison) outputs(o *rules.Outcome, kind keys.Kind) (given, asked []output) {
	add := func(key, value string) {
		origin, _ := o.Origin(kind, key)
		row := output{Key: key, Value: value, source: c.source(origin.Ref), Differs: written.Differs(c.node, c.keeps, kind, key, value)}
		if origin.Object == "" {
			asked = append(asked, row)
		} else {
			given = append(given, row)
		}
	}
	if kind == keys.Taint {
		for _, t := range o.Taints() {
			add(t.Key+":"+string(t.Effect), t.Value)
		}
		return given, asked
	}
	values := map[keys.Kind]func() map[string]string{
		keys.Label: o.Labels, keys.Annotation: o.Annotations, keys.Resource: o.ExtendedResources,
		keys.Condition: o.NodeConditions,
	}[kind]()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		add(key, values[key])
	}
	return given, asked
}

// trace is the result of one rule on one node.
type trace struct {
	// Word is MATCH, NO MATCH, SKIPPED or ERROR.
	Word               string
	Object, Rule, Base string
	// Say are sentences about the result, such as the reason why the rule was skipped.
	Say      []string
	Lines    []tracing.Line
	Outputs  []rules.TracedOutput
	Rejected []rules.Rejection
	// Lacking is the number of expressions that do not hold.
	Lacking int
}

// Class returns the CSS class of the result.
func (t *trace) Class() string { return strings.ToLower(strings.ReplaceAll(t.Word, " ", "")) }

// newTrace returns the trace of a rule for display.
func newTrace(r *rules.RuleTrace, mask rules.Masking) trace {
	out := trace{Word: "NO MATCH", Object: r.Object, Rule: r.Rule, Base: r.Base, Rejected: r.Rejected, Lacking: tracing.Lacking(r)}
	switch {
	case r.Err != nil:
		out.Word = "ERROR"
	case r.Skipped != "":
		out.Word = "SKIPPED"
	case r.Matched:
		out.Word = "MATCH"
	}
	if r.Skipped != "" {
		out.Say = append(out.Say, r.Skipped)
		return out
	}
	if r.Err != nil {
		out.Say = append(out.Say, r.Err.Error())
	}
	if r.Partial != nil && !r.Sensitive {
		out.Say = append(out.Say, "in part: "+r.Partial.Error())
	}
	if r.Sensitive {
		out.Say = append(out.Say, "The rule is sensitive: what it reads is not shown.")
	} else if why := tracing.Why(r, mask); why != "" {
		out.Say = append(out.Say, why)
	}
	out.Lines = tracing.Lines(r, mask)
	for _, o := range r.Outputs {
		if r.Sensitive && o.Kind == keys.Var {
			o.Value = rules.Hidden
		}
		if o.Kind == keys.Taint {
			o.Key = strings.TrimSuffix(o.Key, "=")
		}
		out.Outputs = append(out.Outputs, o)
	}
	return out
}

// newTraces returns the traces of all rules: first errors, then rules that match, then other rules, closest first.
func newTraces(list []rules.RuleTrace, mask rules.Masking) []trace {
	out := make([]trace, len(list))
	for i := range list {
		out[i] = newTrace(&list[i], mask)
	}
	order := map[string]int{"ERROR": 0, "MATCH": 1, "NO MATCH": 2, "SKIPPED": 3}
	slices.SortStableFunc(out, func(a, b trace) int {
		if d := order[a.Word] - order[b.Word]; d != 0 || a.Word != "NO MATCH" {
			return d
		}
		return a.Lacking - b.Lacking
	})
	return out
}
