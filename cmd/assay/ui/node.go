package ui

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/rules"
)

const (
	// maxTraces is the maximum number of rules on the page of a node, and maxLines the number of lines of their terms after which no rule
	// follows: 150 rules of a real server had 200 kB. The other rules have their own pages.
	maxTraces     = 100
	maxTraceLines = 300
)

// nodePage is the page of one node.
type nodePage struct {
	Name, Query string
	// Published is set if there are NodeFeatures for the node.
	Published bool
	// Unevaluated says why no rule is evaluated, or "".
	Unevaluated string
	HasObject   bool
	Publishers  []string
	// State is the most urgent state of the node, States are the columns that are known of it.
	State   cell
	States  []knownState
	Outcome outcome
	// Kept are keys that Assay has written for rules and that none gives now, Own those that it writes without a rule, Foreign those of other
	// clients.
	Kept, Own, Foreign *table
	// Live is what the cluster says about the node.
	Live   *nodeLive
	Traces []trace
	// MoreTraces is the number of rules that are not shown, Matched the number of rules that match.
	MoreTraces, Matched, Rules int
	Tree                       tree
}

func (p *nodePage) tables() []*table {
	return append([]*table{p.Outcome.Outputs, p.Outcome.Asked, p.Kept, p.Own, p.Foreign}, p.Live.tables()...)
}

// knownState is a state column with its value.
type knownState struct {
	Name, Title string
	Cell        cell
}

// newNodePage returns the page of a node, or nil if the node does not exist.
func newNodePage(ctx context.Context, d *data, name, query string) *nodePage {
	n := d.node(name)
	if n == nil {
		return nil
	}
	o := d.Program.Eval(n.Input) // without rules if they are unknown
	if d.Unknown.Features != "" {
		o = rules.Link(d.Known.Rules).Eval(n.Input)
	}
	c := comparison{node: n.Object, settings: d.Desired, linked: true, orphan: !n.OfWorker, program: d.Program}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	if d.Report != nil && n.Object != nil {
		c.report = d.Report(ctx, n.Object)
		for _, err := range []*error{&c.report.LeaderErr, &c.report.EventsErr} {
			if *err != nil {
				*err = errors.New(unread(*err))
			}
		}
	}
	p := &nodePage{
		Name: name, Query: query, Published: n.Published, Unevaluated: d.unevaluated(), HasObject: n.Object != nil,
		Outcome: newOutcome(o, c), Tree: newTree(n.Input.Facts, query, d.Snapshot),
	}
	state := d.nodeState(d.place[name], d.unevaluated() == "")
	p.State = state.cell()
	p.State.Note = ""
	for _, s := range columnStates {
		if c := s.of(d, d.place[name]); c.Text != "" {
			p.States = append(p.States, knownState{s.Name, s.Title, c})
		}
	}
	for _, publisher := range n.Input.Publishers {
		if name := strings.Trim(publisher.Name, "/"); name != "" {
			p.Publishers = append(p.Publishers, name)
		}
	}
	var unwanted []Unwanted
	if d.Explain != nil && n.Object != nil && p.Unevaluated == "" {
		unwanted = d.Explain(ctx, n.Object, o, cmp.Or(c.report, &held.Report{}))
	}
	p.unwanted(unwanted, slices.ContainsFunc(d.Rules, func(r Rule) bool { return r.LeftOut != "" }))
	if p.Unevaluated == "" {
		p.Traces = newTraces(d.Program.Trace(n.Input), d.Known.Rules.Mask)
	}
	p.Rules = len(p.Traces)
	for i := range p.Traces {
		if p.Traces[i].Word == "MATCH" {
			p.Matched++
		}
	}
	shown, lines := 0, 0
	for shown < min(len(p.Traces), maxTraces) && lines < maxTraceLines {
		lines += len(p.Traces[shown].Lines)
		shown++
	}
	p.MoreTraces = len(p.Traces) - shown
	p.Traces = p.Traces[:shown]
	return p
}

// unwanted fills the tables of keys of the Node that rules do not give. Partial is set if a rule is not evaluated here: it may give them.
func (p *nodePage) unwanted(list []Unwanted, partial bool) {
	var kept, own, others [][]cell
	for i := range list {
		u := &list[i]
		row := []cell{plain(string(u.Kind)), plain(u.Key), plain(u.Value)}
		by := plain(cmp.Or(strings.Join(u.By, ", "), "unknown"))
		switch {
		case u.Kept:
			state := cell{Text: "kept", Class: "warn", Note: u.Why}
			if u.Hold != nil {
				state.Text, state.Note = cmp.Or(holdWords[u.Hold.Reason], state.Text), u.Hold.String()
			} else if partial {
				state.Text, state.Note = "unknown", "a rule that is not evaluated here may give it"
			}
			kept = append(kept, slices.Concat([]cell{state}, row, []cell{by}))
		case u.Own:
			own = append(own, append(row, plain(u.Why)))
		default:
			others = append(others, append(row, by))
		}
	}
	key := slices.Concat(columns(columnText, "kind"), columns(columnMono, "key", "value"))
	caption := "Kept, although no rule gives them now"
	if partial {
		caption = "Written by Assay, and not given by the rules that are evaluated here"
	}
	p.Kept = tableOf("kept", caption, slices.Concat(columns(columnState, "on the Node"), key, columns(columnText, "set by")), kept)
	p.Own = tableOf("own", "Written by Assay itself", slices.Concat(key, columns(columnText, "why")), own)
	p.Foreign = tableOf("others", "Set by other clients", slices.Concat(key, columns(columnText, "client")), others)
}
