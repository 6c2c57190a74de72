package ui

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

const (
	// maxKinds is the maximum number of kinds of nodes that are searched for the closest ones. Each one costs a trace of all rules.
	maxKinds = 64
	// maxNearest is the maximum number of closest nodes that are shown.
	maxNearest = 5
	// nodesPerPage is the number of nodes on one page.
	nodesPerPage = 100
)

// rulesPage is the list of rules.
type rulesPage struct {
	Rows  []ruleRow
	Nodes int
}

// ruleRow is one rule object.
type ruleRow struct {
	Name, Phase, Ready, Message string
	Priority                    int32
	Rules, Matched              int
	BuiltIn                     bool
}

func newRulesPage(d *data) *rulesPage {
	matched := map[string]int{}
	list := d.Program.Rules()
	for _, v := range d.all() {
		objects := map[string]bool{}
		for i, r := range list {
			if v.matches(i) && !objects[r.Object] {
				objects[r.Object] = true
				matched[r.Object]++
			}
		}
	}
	p := &rulesPage{Nodes: len(d.Nodes)}
	for i := range d.Rules {
		r := d.Rules[i].Object
		row := ruleRow{
			Name: r.Name, Phase: cmp.Or(string(ptr.Deref(r.Spec.Phase, "")), string(nfdv1alpha1.PhaseMain)), Priority: ptr.Deref(r.Spec.Priority, 0),
			Rules: len(r.Spec.Rules), Matched: matched[r.Name], BuiltIn: d.Rules[i].BuiltIn,
		}
		for _, c := range r.Status.Conditions {
			if c.Type == "Ready" {
				row.Ready, row.Message = string(c.Status), c.Message
				if c.Status != metav1.ConditionTrue {
					row.Ready = c.Reason
				}
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

// rulePage is the page of one rule object.
type rulePage struct {
	Name, Text string
	BuiltIn    bool
	Conditions []condition
	Parts      []rulePart
	Nodes      int
	// Matched are nodes on which at least one rule matches, Unmatched the other nodes.
	Matched, Unmatched pageOf
	Nearest            []near
	// Searched is the number of kinds of nodes that were searched for the closest ones, Kinds the number of all kinds.
	Searched, Kinds int
}

// condition is a condition in the status.
type condition struct{ Type, Status, Reason, Message, Age string }

// rulePart is one rule of the object.
type rulePart struct {
	Name            string
	Matched, Errors int
	// Error is the error of the first node on which the rule fails.
	Error string
}

// pageOf is one page of a list of nodes.
type pageOf struct {
	Names               []string
	Total, Page, Pages  int
	Previous, Following int
}

// near is a node that a rule almost matches.
type near struct {
	Node string
	// Same is the number of other nodes with the same unmet requirements.
	Same  int
	Trace trace
}

// newRulePage returns the page of a rule object, or nil if it does not exist.
func newRulePage(d *data, name string, matchedPage, unmatchedPage int) *rulePage {
	i := slices.IndexFunc(d.Rules, func(r Rule) bool { return r.Object.Name == name })
	if i < 0 {
		return nil
	}
	r := &d.Rules[i]
	p := &rulePage{Name: name, Text: r.Text, BuiltIn: r.BuiltIn, Nodes: len(d.Nodes)}
	for _, c := range r.Object.Status.Conditions {
		age := ""
		if !c.LastTransitionTime.IsZero() {
			age = duration.HumanDuration(d.At.Sub(c.LastTransitionTime.Time))
		}
		p.Conditions = append(p.Conditions, condition{c.Type, string(c.Status), c.Reason, c.Message, age})
	}
	var matched, unmatched []string
	list := d.Program.Rules()
	for i, v := range d.all() {
		if node := d.Nodes[i].Input.Node.Name; p.count(list, &v) {
			matched = append(matched, node)
		} else {
			unmatched = append(unmatched, node)
		}
	}
	p.nearest(d, unmatched)
	p.Matched, p.Unmatched = newPageOf(matched, matchedPage), newPageOf(unmatched, unmatchedPage)
	return p
}

// count adds the verdict on a node and reports whether a rule of the object matches it.
func (p *rulePage) count(list []rules.Ref, v *verdict) bool {
	matched, part := false, 0
	for i, r := range list {
		if r.Object != p.Name {
			continue
		}
		if part == len(p.Parts) {
			p.Parts = append(p.Parts, rulePart{Name: r.Rule})
		}
		of := &p.Parts[part]
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

// newPageOf returns a page of a list. Pages are counted from 1; a page number outside of the range is clamped.
func newPageOf(names []string, page int) pageOf {
	pages := max(1, (len(names)+nodesPerPage-1)/nodesPerPage)
	page = min(max(page, 1), pages)
	from := (page - 1) * nodesPerPage
	out := pageOf{Names: names[from:min(len(names), from+nodesPerPage)], Total: len(names), Page: page, Pages: pages, Previous: page - 1}
	if page < pages {
		out.Following = page + 1
	}
	return out
}
