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

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/rules/clip"
)

// heldBack are the Events of keys that keep an old value on a Node until something is repaired, with what to report about them. Removals that
// are held end by themselves and are not a fault.
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
		events = current(events, e.c.Now())
		if len(events) == 0 {
			continue
		}
		found = true
		var shown []string
		for i := range events {
			shown = append(shown, events[i].InvolvedObject.Name+": "+events[i].Message)
		}
		e.report("holds", Warning, fmt.Sprintf("%s: %s: %s", clip.Count(len(events), "Node"), held.text, clip.Join(shown, "; ", maxListed)),
			fmt.Sprintf("assay explain %s %s %s", events[0].InvolvedObject.Name, firstKey(events[0].Message), held.fix))
	}
	if !found {
		e.ok("holds", "the controller reports no key of a Node that flaps, is contested or is rejected")
	}
	return nil
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

// current returns the latest Event of each Node, of those whose hold lasts, sorted by the names of the Nodes.
func current(events []corev1.Event, now time.Time) []corev1.Event {
	latest := map[string]corev1.Event{}
	ends := map[string]time.Time{}
	for i := range events {
		until, _, ok := hold.Read(events[i].Message)
		if name := events[i].InvolvedObject.Name; ok && until.After(now) && until.After(ends[name]) {
			latest[name], ends[name] = events[i], until
		}
	}
	out := make([]corev1.Event, 0, len(latest))
	for _, event := range latest {
		out = append(out, event)
	}
	slices.SortFunc(out, func(a, b corev1.Event) int { return cmp.Compare(a.InvolvedObject.Name, b.InvolvedObject.Name) })
	return out
}

// firstKey returns the first key that the message of a hold names, or "".
func firstKey(message string) string {
	_, why, _ := hold.Read(message)
	_, names, _ := strings.Cut(message, why+": ")
	_, key, _ := strings.Cut(names, " ")
	if i := strings.IndexAny(key, ` ,;="`); i >= 0 {
		key = key[:i]
	}
	return key
}
