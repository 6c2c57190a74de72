package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/clip"
)

// heldBack are the Events of keys that keep an old value on a Node until something is repaired, with what to report about them. Other
// holds end by themselves: the check of Events reports them.
var heldBack = []struct{ reason, text, fix string }{
	{hold.Contested, "another client keeps changing what rules give, and the Node keeps the other value", "names the client: stop it, or remove the key from the rule"},
	{hold.Flapping, "a feature keeps changing, and the Node keeps an old value", "names the rule and the feature: find out why it changes"},
	{hold.Refused, "the API server rejects what rules give, and the Node keeps an old value", "shows the value: correct the rule"},
}

// holds reports keys that the controller leaves as they are, by its Events.
func (e *examination) holds(ctx context.Context) error {
	found, err := e.masters(ctx)
	if err != nil {
		return err
	}
	for _, held := range heldBack {
		events, err := e.c.EventsOfNodes(ctx, held.reason)
		if err != nil {
			return err
		}
		var list []heldNode
		for i := range events {
			for _, h := range hold.Read(&events[i]) {
				if !h.Until.IsZero() && !h.Until.After(e.c.Now()) {
					continue
				}
				next := heldNode{node: events[i].InvolvedObject.Name, text: h.String()}
				if len(h.Keys) > 0 {
					next.key = slices.MinFunc(h.Keys, hold.Compare)
				}
				list = append(list, next)
			}
		}
		if len(list) == 0 {
			continue
		}
		found = true
		slices.SortFunc(list, compareHeld)
		var shown []string
		for _, x := range list {
			shown = append(shown, x.node+": "+x.text)
		}
		e.report("holds", Warning, fmt.Sprintf("%s: %s: %s", clip.Count(len(shown), "Node"), held.text, clip.Join(shown, "; ", maxListed)),
			fmt.Sprintf("assay explain %s %s %s", list[0].node, keyOf(list[0].key), held.fix))
	}
	if !found {
		e.ok("holds", "the controller reports no key of a Node that flaps, is contested or is rejected")
	}
	return nil
}

// heldNode is a hold of a Node, with the most important of its keys; none: it is of all keys.
type heldNode struct{ node, key, text string }

func compareHeld(a, b heldNode) int {
	return cmp.Or(hold.Compare(a.key, b.key), cmp.Compare(a.node, b.node), cmp.Compare(a.text, b.text))
}

// masterAge is how long an Event about another master counts: the controller repeats it each hour.
const masterAge = 70 * time.Minute

// masters reports another program that labels nodes and removes what rules give.
func (e *examination) masters(ctx context.Context) (found bool, err error) {
	events, err := e.c.EventsOfNodes(ctx, hold.AnotherMaster)
	if err != nil {
		return false, err
	}
	latest := map[string]corev1.Event{}
	for i := range events {
		name := events[i].InvolvedObject.Name
		if at, before := events[i].LastTimestamp.Time, latest[name].LastTimestamp.Time; e.c.Now().Sub(at) < masterAge && at.After(before) {
			latest[name] = events[i]
		}
	}
	if len(latest) == 0 {
		return false, nil
	}
	nodes := slices.Sorted(maps.Keys(latest))
	e.report("holds", Warning, fmt.Sprintf("%s: another program labels Nodes and removes what rules give: %s: %s",
		clip.Count(len(nodes), "Node"), clip.Join(nodes, ", ", maxListed), latest[nodes[0]].Message),
		"stop one of the two, for example with nfd.enabled=false in the chart of an operator, or give one an instance name (-instance)")
	return true, nil
}

// keyOf returns the key of a name that hold.Key has formed.
func keyOf(name string) string { return name[strings.LastIndexByte(name, ' ')+1:] }
