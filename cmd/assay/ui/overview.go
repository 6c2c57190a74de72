package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/manifest"
)

const (
	// maxHolds is the number of holds on the first page, and maxOfHold the number of their nodes in a link.
	maxHolds, maxOfHold = 6, 60
	// maxLatest is the number of Events, and of objects on a card.
	maxLatest, maxOnCard = 20, 5
	// evaluationWait is the time for which the first page waits for the evaluation of all nodes. With many rules it takes seconds.
	evaluationWait = 200 * time.Millisecond
)

// overviewPage is the first page.
type overviewPage struct {
	Total int
	// Known is set if all nodes could be read, Pending if rules are not evaluated on all of them yet.
	Known, Pending bool
	Squares        *squares
	// States are the numbers of nodes by state.
	States []swatch
	// Rules are the numbers of objects with rules by state.
	Rules        []stateCount
	RulesUnknown string
	Holds        []heldKeys
	// MoreHolds is the number of holds that are not shown.
	MoreHolds int
	// Baselines are those with deviating nodes; Conforming is the number of others, Unevaluated that of those without a result.
	Baselines               []cell
	Conforming, Unevaluated int
	BaselinesUnknown        string
	// Waiting are pods without a node that require features, AllWaiting is the number of all.
	Waiting        []cell
	AllWaiting     int
	WaitingUnknown string
	Events         *table
	EventsUnknown  string
}

func (p *overviewPage) tables() []*table { return some(p.Events) }

// heldKeys is a hold of the same kind on one or more nodes.
type heldKeys struct {
	Word, Why, Link string
	Nodes           []string
	// Left is the time until the controller acts on the first of them, unless the reason is gone before.
	Left cell
}

func newOverviewPage(d *data, by, color string) *overviewPage {
	p := &overviewPage{Total: len(d.Nodes), Known: d.Unknown.Nodes == "" && d.Unknown.Features == "", RulesUnknown: d.Unknown.Rules}
	p.Pending = !d.evaluatedWithin(evaluationWait)
	states := make([]nodeState, len(d.Nodes))
	for i := range states {
		states[i] = d.nodeState(i, !p.Pending)
	}
	p.States = countStates(states)
	for i := range p.States {
		p.States[i].Link = nodesLink(p.States[i].Link)
	}
	p.Squares = newSquares(d, by, color, states)
	_, p.Rules = d.ruleStates(!p.Pending)
	p.baselines(d)
	p.waiting(d)
	p.events(d)
	return p
}

func (p *overviewPage) baselines(d *data) {
	all := &d.Objects.Baselines
	if p.BaselinesUnknown = all.Unknown; all.Absent {
		p.BaselinesUnknown = ""
	}
	k := kindByID("nodebaselines")
	for i := range all.Items {
		switch b := &all.Items[i]; {
		case b.Status.Nodes == nil:
			p.Unevaluated++
		case ptr.Deref(b.Status.Deviating, 0) == 0:
			p.Conforming++
		default:
			c := link(b.Name, k.address("", b.Name))
			c.Faint = fmt.Sprintf("%s of %s", thousands(int(*b.Status.Deviating)), plural(int(*b.Status.Nodes), "node"))
			c.Key = fmt.Sprintf("%09d", 1<<29-int(*b.Status.Deviating))
			p.Baselines = append(p.Baselines, c)
		}
	}
	slices.SortStableFunc(p.Baselines, func(a, b cell) int { return cmp.Compare(a.Key, b.Key) })
}

func (p *overviewPage) waiting(d *data) {
	all := &d.Objects.Waiting
	p.AllWaiting, p.WaitingUnknown = len(all.Items), all.Unknown
	for i := range all.Items {
		pod := &all.Items[i]
		if asked(pod) == "" {
			continue
		}
		c := link(pod.Namespace+"/"+pod.Name, podAddress(pod.Namespace, pod.Name))
		c.Faint = d.ageOf(&pod.CreationTimestamp).Text
		p.Waiting = append(p.Waiting, c)
	}
}

// events fills the holds and the latest Events.
func (p *overviewPage) events(d *data) {
	if p.EventsUnknown = d.Objects.Events.Unknown; p.EventsUnknown != "" {
		return
	}
	list := slices.Clone(d.Objects.Events.Items)
	p.holds(d, list)
	slices.SortStableFunc(list, func(a, b corev1.Event) int { return lastTime(&b).Compare(lastTime(&a)) })
	p.Events = d.events(list[:min(len(list), maxLatest)], true)
	p.Events.Caption = "Latest Events of Assay"
}

// holds groups the holds of all Nodes, those first on which the controller acts first.
func (p *overviewPage) holds(d *data, list []corev1.Event) {
	type kind struct{ reason, why string }
	place := map[kind]int{}
	var until []time.Time
	for i := range list {
		e := &list[i]
		for _, h := range hold.Read(e) {
			if !h.Until.IsZero() && h.Until.Before(d.now) {
				continue
			}
			at, known := place[kind{h.Reason, h.Why}]
			if !known {
				at = len(p.Holds)
				place[kind{h.Reason, h.Why}] = at
				p.Holds, until = append(p.Holds, heldKeys{Word: cmp.Or(holdWords[h.Reason], "held"), Why: h.Why}), append(until, h.Until)
			}
			if x := &p.Holds[at]; !slices.Contains(x.Nodes, e.InvolvedObject.Name) {
				x.Nodes = append(x.Nodes, e.InvolvedObject.Name)
			}
			if until[at].IsZero() || !h.Until.IsZero() && h.Until.Before(until[at]) {
				until[at] = h.Until
			}
		}
	}
	for i := range p.Holds {
		x := &p.Holds[i]
		x.Left = d.until(until[i])
		slices.Sort(x.Nodes)
		if len(x.Nodes) == 1 {
			x.Link = nodeCell(x.Nodes[0]).Link
			continue
		}
		names := make([]string, min(len(x.Nodes), maxOfHold))
		for n := range names {
			names[n] = quoteWord(x.Nodes[n])
		}
		x.Link = nodesLink("name In " + strings.Join(names, ", "))
	}
	slices.SortStableFunc(p.Holds, func(a, b heldKeys) int {
		if a.Left.At.IsZero() != b.Left.At.IsZero() {
			return cmp.Compare(b.Left.At.Unix(), a.Left.At.Unix()) // those without an end are last
		}
		return a.Left.At.Compare(b.Left.At)
	})
	p.MoreHolds = max(0, len(p.Holds)-maxHolds)
	p.Holds = p.Holds[:min(len(p.Holds), maxHolds)]
}

// aboutCell links to the object of an Event.
func aboutCell(o *corev1.ObjectReference) cell {
	switch o.Kind {
	case "Node":
		return nodeCell(o.Name)
	case "Pod":
		return link(o.Namespace+"/"+o.Name, podAddress(o.Namespace, o.Name))
	case manifest.KindRule:
		return ruleCell(o.Name)
	}
	name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	for _, k := range kindsOfObjects {
		if k.Kind == o.Kind {
			return link(name, k.address(o.Namespace, o.Name))
		}
	}
	return plain(o.Kind + " " + name)
}

// until returns the time that is left in the form of kubectl.
func (d *data) until(at time.Time) cell {
	if at.IsZero() {
		return cell{}
	}
	left := max(0, at.Sub(d.now))
	return cell{Text: shortDuration(left), Key: strconv.Itoa(int(left / time.Second)), At: at}
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.show(w, r, http.StatusOK, firstPage, "Overview", newOverviewPage(s.current(), q.Get("by"), q.Get("color")))
}
