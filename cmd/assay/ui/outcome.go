package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// outcome holds the outputs of rules for one node.
type outcome struct {
	// Failed is the reason why nothing is written, or "".
	Failed string
	// Outputs are those of rules, Asked the labels that NodeFeatures request directly.
	Outputs, Asked *table
	// Given is the number of outputs that rules give, Lacking the number of those that the Node does not have.
	Given, Lacking int
	Notes          []string
}

// Empty reports whether rules give nothing, and nothing else is said about their outputs.
func (o *outcome) Empty() bool { return o.Given == 0 && o.Failed == "" && o.Outputs.Count() == 0 }

// output is a key that rules give, or that is not written.
type output struct {
	state cell
	kind  keys.Kind
	key   string
	value string
	from  rules.Ref
	rank  int // problems first
}

// comparison holds what an outcome is compared with.
type comparison struct {
	node     *corev1.Node // nil if the Node is unknown
	settings desired.Settings
	linked   bool // whether rules have pages
	// report is what the controller reports about the Node; nil: unknown. orphan is set if its worker has no NodeFeature.
	report *held.Report
	orphan bool
	// program are the rules of the outcome; nil: unknown.
	program *rules.Program
}

// readsDevices reports whether an output can depend on devices of DRA drivers.
func (c *comparison) readsDevices(g rules.Given) bool {
	return c.program != nil && c.program.ReadsDevices(g.Kind, g.Key, func(*rules.RuleSet) bool { return true })
}

// newOutcome returns the outputs of rules for a node.
func newOutcome(o *rules.Outcome, c comparison) outcome {
	var out outcome
	var given, asked []output
	if o.Failed != nil {
		out.Failed = fmt.Sprintf("Rule %s prevents all changes to this node: %s", o.Failed.Ref, o.Failed.Message)
	} else {
		compared := c.settings.Compare(c.node, desired.Of(o))
		for g := range o.Given() {
			origin, _ := o.Origin(g.Kind, g.Key)
			row := output{kind: g.Kind, key: g.Key, value: g.Value, from: origin.Ref}
			row.state, row.rank = c.state(compared, g)
			if row.rank == rankLacking {
				out.Lacking++
			}
			if origin.Object == "" {
				asked = append(asked, row)
			} else {
				given = append(given, row)
			}
		}
		out.Given = len(given)
	}
	for _, no := range o.Rejected() {
		row := output{state: cell{Text: "not written", Class: "warn", Note: no.Reason}, kind: no.Kind, key: no.Key, from: no.Ref, rank: rankWithheld}
		if no.Missing {
			row.state.Text, row.state.Class, row.rank = "no value", "faint", rankWritten
		}
		given = append(given, row)
	}
	for _, x := range o.Conflicts() {
		given = append(given, output{
			state: cell{Text: "conflict", Class: "warn", Note: x.Kept.String() + " sets another value and wins"},
			kind:  x.Kind, key: x.Key, from: x.Lost, rank: rankWithheld,
		})
	}
	out.Outputs = c.table("outputs", "Outputs of rules", given)
	out.Asked = c.table("asked", "Labels that NodeFeatures request without a rule", asked)
	for _, m := range o.Messages() {
		out.Notes = append(out.Notes, fmt.Sprintf("%s logs (%s): %s", m.Ref, m.Level, m.Text))
	}
	for _, e := range o.Events() {
		out.Notes = append(out.Notes, fmt.Sprintf("%s records an Event (%s, %s): %s", e.Ref, e.Type, e.Reason, e.Message))
	}
	return out
}

// The ranks of outputs: what needs attention is first.
const (
	rankLacking = iota
	rankWithheld
	rankWritten
)

// holdWords are the states of outputs by the reason of the Event that reports them.
var holdWords = map[string]string{
	hold.Removal: "held", hold.Addition: "held", hold.Flapping: "suppressed", hold.Contested: "contested", hold.Refused: "rejected",
	hold.Eviction: "waiting", hold.Unread: "unknown", hold.Incomplete: "held", hold.Devices: "held",
}

// state returns whether the Node has an output, and the reason if it has not.
func (c *comparison) state(compared *desired.Comparison, g rules.Given) (cell, int) {
	state, has, why := compared.Given(g.Kind, g.Key)
	switch state {
	case desired.Withheld:
		return cell{Text: "withheld", Class: "warn", Note: why}, rankWithheld
	case desired.Unknown:
		return cell{Text: "given"}, rankWritten
	case desired.Written:
		return cell{Text: "written", Class: "good"}, rankWritten
	}
	why = state.Describe(has)
	out := cell{Text: "not written", Class: "bad", Note: why}
	if c.report == nil {
		return out, rankLacking
	}
	if h := c.report.Of(g.Kind, g.Key, c.orphan, c.readsDevices(g)); h != nil {
		out.Text, out.Note = cmp.Or(holdWords[h.Reason], out.Text), why+"; "+h.String()
	} else if text := c.report.Nothing(); text != "" {
		out.Note += "; " + text
	}
	return out, rankLacking
}

// table lists outputs, those that need attention first.
func (c *comparison) table(id, caption string, list []output) *table {
	slices.SortStableFunc(list, func(a, b output) int { return a.rank - b.rank })
	state := "on the Node"
	if c.node == nil {
		state = "result"
	}
	heads := []tableColumn{{Name: state, Kind: columnState}, {Name: "kind"}, {Name: "key", Kind: columnMono}, {Name: "value", Kind: columnMono}, {Name: "from"}}
	return newTable(id, caption, heads, len(list), func(row, column int) cell {
		o := &list[row]
		from := cell{Text: o.from.String()}
		switch {
		case o.from.Object == "":
			from = cell{Text: "a NodeFeature", Class: "faint"}
		case c.linked:
			from.Link = ruleCell(o.from.Object).Link
		}
		return []cell{o.state, {Text: string(o.kind)}, {Text: o.key}, {Text: o.value}, from}[column]
	})
}

// trace is the result of one rule on one node.
type trace struct {
	// Word is MATCH, NO MATCH, SKIPPED or ERROR.
	Word               string
	Object, Rule, Base string
	// Node is set if the page shows traces of several nodes.
	Node string
	// Say are sentences about the result, such as the reason why the rule was skipped.
	Say      []string
	Lines    []tracing.Line
	Outputs  []rules.TracedOutput
	Rejected []rules.Rejection
	// Lacking is the number of expressions that do not hold.
	Lacking int
}

// Class returns the CSS class of the result.
func (t trace) Class() string { return strings.ToLower(strings.ReplaceAll(t.Word, " ", "")) }

// On returns the trace with the name of its node.
func (t trace) On(node string) trace {
	t.Node = node
	return t
}

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
		o.How = tracing.How(&o)
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
