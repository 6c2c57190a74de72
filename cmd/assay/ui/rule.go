package ui

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
)

const (
	// maxKinds is the maximum number of kinds of nodes that are searched for the closest ones. Each one costs a trace of all rules.
	maxKinds = 64
	// maxNearest is the maximum number of closest nodes that are shown.
	maxNearest = 5
)

// rulesPage is the list of rules.
type rulesPage struct {
	Table *table
	Nodes int
	// Known is set if the rules could be read.
	Known bool
	// States are the states of the objects with their numbers, those that need attention first.
	States []stateCount
}

// stateCount is the number of objects in a state.
type stateCount struct {
	State cell
	Count int
}

// stateOrder returns the place of a state: those that need attention are first.
func stateOrder(c cell) int {
	order := []string{"not accepted", "not resolved", "not ready", "failing", "warn", "no status", "built in", "ready"}
	if c.Class == "warn" { // withheld, conflicted, flapping, or several of them
		return slices.Index(order, c.Class)
	}
	return slices.Index(order, c.Text)
}

func (p *rulesPage) tables() []*table { return []*table{p.Table} }

func newRulesPage(d *data) *rulesPage {
	d.evaluate()
	matched, withheld, conflicts := map[string]int{}, map[string]int{}, map[string]int{}
	list := d.Program.Rules()
	for n := range d.Nodes {
		if d.unevaluated() != "" {
			break
		}
		v := d.verdict(n)
		hit := map[string]bool{}
		for i, r := range list {
			if v.matches(i) {
				hit[r.Object] = true
			}
		}
		count(matched, maps.Keys(hit))
		count(withheld, slices.Values(v.withheld.objects))
		count(conflicts, slices.Values(v.conflicts.objects))
	}
	heads := []tableColumn{
		{Name: "name"}, {Name: "state", Kind: columnState, Title: "What the controller reports in the status, and errors of the evaluation here"}, {Name: "phase"},
		{Name: "priority", Kind: columnValue}, {Name: "rules", Kind: columnCount},
		{Name: "matched", Kind: columnCount, Title: "Nodes on which a rule of the object matches, as evaluated here"}, {Name: "share", Kind: columnShare},
		{Name: "withheld", Kind: columnCount, Title: "Nodes on which outputs are withheld, as evaluated here"},
		{Name: "conflicts", Kind: columnCount, Title: "Nodes on which outputs lose against another rule, as evaluated here"},
	}
	p := &rulesPage{Nodes: len(d.Nodes), Known: d.Unknown.Rules == ""}
	state, counts := d.ruleStates(true)
	p.States = counts
	p.Table = newTable("rules", "Objects with rules", heads, len(d.Rules), func(row, column int) cell {
		r := d.Rules[row].Object
		switch column {
		case 0:
			name := ruleCell(r.Name)
			if d.Rules[row].BuiltIn {
				name.Faint = "built in"
			}
			return name
		case 1:
			return state[row]
		case 2:
			return cell{Text: cmp.Or(string(ptr.Deref(r.Spec.Phase, "")), string(nfdv1alpha1.PhaseMain))}
		}
		if column >= 5 && (d.unevaluated() != "" || d.Rules[row].LeftOut != "") {
			return cell{}
		}
		n := []int{int(ptr.Deref(r.Spec.Priority, 0)), len(r.Spec.Rules), matched[r.Name], percent(matched[r.Name], len(d.Nodes)), withheld[r.Name], conflicts[r.Name]}[column-3]
		return cell{Text: strconv.Itoa(n), Class: map[bool]string{true: "warn"}[column >= 7 && n > 0]}
	})
	p.Table.Help = "In the order of their evaluation, unless you sort them."
	return p
}

// ruleStates returns the state of each object with rules, and their numbers. Evaluated is set if failures of the evaluation here count.
func (d *data) ruleStates(evaluated bool) (state []cell, numbers []stateCount) {
	faulty, list := map[string]int{}, d.Program.Rules()
	for n := range d.Nodes {
		if !evaluated || d.unevaluated() != "" {
			break
		}
		failed := map[string]bool{}
		for i := range d.verdict(n).errors {
			failed[list[i].Object] = true
		}
		count(faulty, maps.Keys(failed))
	}
	for i := range d.Rules {
		c := ruleState(&d.Rules[i], faulty[d.Rules[i].Object.Name])
		c.Key = strconv.Itoa(stateOrder(c))
		state = append(state, c)
		if at := slices.IndexFunc(numbers, func(n stateCount) bool { return n.State.Text == c.Text }); at >= 0 {
			numbers[at].Count++
		} else {
			numbers = append(numbers, stateCount{cell{Text: c.Text, Class: c.Class, Key: c.Key}, 1})
		}
	}
	slices.SortFunc(numbers, func(a, b stateCount) int {
		return cmp.Or(cmp.Compare(a.State.Key, b.State.Key), cmp.Compare(a.State.Text, b.State.Text))
	})
	return state, numbers
}

// count adds one to the counts of keys.
func count(counts map[string]int, keys iter.Seq[string]) {
	for key := range keys {
		counts[key]++
	}
}

// ruleState returns in words what the conditions of an object report, and what is different here.
func ruleState(rule *Rule, faulty int) cell {
	out := conditionState(rule.Object, rule.BuiltIn, faulty)
	if rule.LeftOut != "" {
		out.Note = strings.TrimPrefix(out.Note+"; not evaluated here: "+rule.LeftOut, "; ")
	}
	return out
}

// conditionState returns in words what the conditions of an object report.
func conditionState(r *nfdv1alpha1.NodeFeatureRule, builtIn bool, faulty int) cell {
	state := func(kind string) *metav1.Condition { return meta.FindStatusCondition(r.Status.Conditions, kind) }
	is := func(kind string, status metav1.ConditionStatus) bool {
		c := state(kind)
		return c != nil && c.Status == status
	}
	say := func(word, class, kind string) cell {
		c := state(kind)
		return cell{Text: word, Class: class, Note: cmp.Or(c.Message, c.Reason)}
	}
	switch {
	case is(nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse):
		return say("not accepted", "bad", nfdv1alpha1.ConditionAccepted)
	case is(nfdv1alpha1.ConditionResolved, metav1.ConditionFalse):
		return say("not resolved", "bad", nfdv1alpha1.ConditionResolved)
	case is(nfdv1alpha1.ConditionReady, metav1.ConditionFalse):
		return say("not ready", "bad", nfdv1alpha1.ConditionReady)
	case is(nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse):
		return say("failing", "bad", nfdv1alpha1.ConditionHealthy)
	}
	var words, notes []string
	for _, warn := range []struct{ kind, word string }{
		{nfdv1alpha1.ConditionWithheld, "withheld"}, {nfdv1alpha1.ConditionConflicted, "conflicted"}, {nfdv1alpha1.ConditionFlapping, "flapping"},
	} {
		if is(warn.kind, metav1.ConditionTrue) {
			words, notes = append(words, warn.word), append(notes, say("", "", warn.kind).Note)
		}
	}
	switch {
	case len(words) > 0:
		return cell{Text: strings.Join(words, " and "), Class: "warn", Note: strings.Join(notes, "; ")}
	case faulty > 0:
		return cell{Text: "failing", Class: "bad", Note: "a rule fails on " + plural(faulty, "node") + " here"}
	case is(nfdv1alpha1.ConditionReady, metav1.ConditionTrue):
		return cell{Text: "ready", Class: "good"}
	case builtIn:
		return cell{Text: "built in"}
	}
	return cell{Text: "no status", Class: "faint"}
}

// rulePage is the page of one rule object.
type rulePage struct {
	Name, Text string
	BuiltIn    bool
	// Unevaluated says why the rules of the object are not evaluated, or "".
	Unevaluated string
	Conditions  *table
	Parts       *table
	Nodes       int
	// Matched are nodes on which at least one rule matches, Unmatched the other nodes.
	Matched, Unmatched *table
	// Complete is the number of matched nodes whose Node has all outputs of the object, Incomplete are those whose Node lacks some; nil: none.
	Complete   int
	Incomplete *table
	Nearest    []near
	// Searched is the number of kinds of nodes that were searched for the closest ones, Kinds the number of all kinds.
	Searched, Kinds int
	Changes         *changes // nil for a built-in rule

	parts []rulePart
}

func (p *rulePage) tables() []*table {
	return append(some(p.Parts, p.Conditions, p.Incomplete, p.Matched, p.Unmatched), p.Changes.tables()...)
}

// rulePart is one rule of the object.
type rulePart struct {
	Name            string
	Matched, Errors int
	// Error is the error of the first node on which the rule fails.
	Error string
}

// near is a node that a rule almost matches.
type near struct {
	Node string
	// Same is the number of other nodes with the same unmet requirements.
	Same  int
	Trace trace
}

// newRulePage returns the page of a rule object, or nil if it does not exist.
func newRulePage(d *data, name string) *rulePage {
	i := slices.IndexFunc(d.Rules, func(r Rule) bool { return r.Object.Name == name })
	if i < 0 {
		return nil
	}
	r := &d.Rules[i]
	p := &rulePage{Name: name, Text: r.Text, BuiltIn: r.BuiltIn, Nodes: len(d.Nodes)}
	p.Conditions = d.conditionTable(r.Object.Status.Conditions)
	if p.Unevaluated = cmp.Or(d.unevaluated(), r.LeftOut); p.Unevaluated != "" {
		return p
	}
	var matched, unmatched, lacking []string
	list := d.Program.Rules()
	d.evaluate()
	for i := range d.Nodes {
		v := d.verdict(i)
		if node := d.Nodes[i].Input.Node.Name; p.count(list, v) {
			matched = append(matched, node)
			switch {
			case d.Nodes[i].Object == nil:
			case v.lacks(name):
				lacking = append(lacking, node)
			default:
				p.Complete++
			}
		} else {
			unmatched = append(unmatched, node)
		}
	}
	p.nearest(d, unmatched)
	p.Parts = p.partTable()
	p.Incomplete = unlessEmpty(nodeList("incomplete", "Nodes that match and lack outputs of it", lacking))
	p.Matched = nodeList("matched", "Nodes that match", matched)
	p.Matched.Empty = "No node matches."
	p.Unmatched = nodeList("unmatched", "Nodes that do not match", unmatched)
	p.Unmatched.Empty = "All nodes match."
	return p
}

// conditionTable lists the conditions in the status of an object.
func (d *data) conditionTable(list []metav1.Condition) *table {
	heads := []tableColumn{{Name: "condition"}, {Name: "status"}, {Name: "message"}, {Name: "since", Kind: columnValue}}
	t := newTable("conditions", "Status in the cluster", heads, len(list), func(row, column int) cell {
		c := &list[row]
		return []cell{{Text: c.Type}, {Text: string(c.Status), Faint: c.Reason}, {Text: c.Message}, d.ageOf(&c.LastTransitionTime)}[column]
	})
	t.Empty = "The object has no status: no controller has read it yet, or it comes from a file."
	return t
}

func (p *rulePage) partTable() *table {
	heads := []tableColumn{{Name: "rule", Kind: columnMono}, {Name: "nodes", Kind: columnCount}, {Name: "share", Kind: columnShare}, {Name: "errors", Kind: columnState}}
	t := newTable("parts", "Rules, as evaluated here", heads, len(p.parts), func(row, column int) cell {
		r := &p.parts[row]
		errors := cell{Text: "none", Class: "faint"}
		if r.Errors > 0 {
			errors = cell{Text: "on " + plural(r.Errors, "node"), Note: r.Error, Class: "bad"}
		}
		return []cell{{Text: r.Name}, {Text: strconv.Itoa(r.Matched)}, {Text: strconv.Itoa(percent(r.Matched, p.Nodes))}, errors}[column]
	})
	t.Empty = "No rule of the object could be compiled, or there are no nodes."
	return t
}

// count adds the verdict on a node and reports whether a rule of the object matches it.
func (p *rulePage) count(list []rules.Ref, v *verdict) bool {
	matched, part := false, 0
	for i, r := range list {
		if r.Object != p.Name {
			continue
		}
		if part == len(p.parts) {
			p.parts = append(p.parts, rulePart{Name: r.Rule})
		}
		of := &p.parts[part]
		part++
		if v.matches(i) {
			of.Matched++
			matched = true
		}
		if err := v.errors[i]; err != nil {
			of.Errors++
			of.Error = cmp.Or(of.Error, err.Error())
		}
	}
	return matched
}

// nearest searches for the nodes with the fewest unmet requirements, among one node of each kind.
func (p *rulePage) nearest(d *data, unmatched []string) {
	same := map[*facts.Facts]int{}
	first := map[*facts.Facts]string{}
	var order []*facts.Facts
	for _, name := range unmatched {
		f := d.node(name).Input.Facts
		if same[f]++; same[f] == 1 {
			first[f] = name
			order = append(order, f)
		}
	}
	p.Kinds, p.Searched = len(order), min(len(order), maxKinds)
	for _, f := range order[:p.Searched] {
		traces := d.Program.Trace(d.node(first[f]).Input)
		for i := range traces {
			if traces[i].Object == p.Name {
				p.near(near{first[f], same[f] - 1, newTrace(&traces[i], d.Known.Rules.Mask)})
			}
		}
	}
	slices.SortStableFunc(p.Nearest, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.Trace.Lacking, b.Trace.Lacking), strings.Compare(a.Node, b.Node))
	})
	p.Nearest = p.Nearest[:min(len(p.Nearest), maxNearest)]
}

// near adds a node, unless there is one with the same unmet requirements.
func (p *rulePage) near(n near) {
	i := slices.IndexFunc(p.Nearest, func(o near) bool {
		return o.Trace.Rule == n.Trace.Rule && slices.Equal(o.Trace.Say, n.Trace.Say) && slices.Equal(o.Trace.Lines, n.Trace.Lines)
	})
	if i < 0 {
		p.Nearest = append(p.Nearest, n)
		return
	}
	p.Nearest[i].Same += 1 + n.Same
}

// ruleChanges reads what changed a rule object.
func (d *data) ruleChanges(ctx context.Context, name string) *changes {
	i := slices.IndexFunc(d.Rules, func(r Rule) bool { return r.Object.Name == name })
	if i < 0 || d.Rules[i].BuiltIn {
		return nil
	}
	return d.changesOf(ctx, manifest.KindRule, "nodefeaturerule", &d.Rules[i].Object.ObjectMeta, "assay rules get "+shellWord(name))
}
