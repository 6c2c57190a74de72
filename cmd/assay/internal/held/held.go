// Package held finds out why a Node differs from what rules give: it reads the holds that the controller publishes, and whether the controller
// runs.
package held

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/keys"
)

// Hold says why the controller leaves a key of a Node as it is.
type Hold struct {
	// Reason is one of hold.Reasons.
	Reason string `json:"reason"`
	// Until is the time at which the controller acts, unless the reason is gone before; absent: there is none.
	Until time.Time `json:"until,omitzero"`
	// Message says why, without the keys.
	Message string `json:"message"`

	left time.Duration // from now
}

// words begin the description of a hold.
var words = map[string]string{
	hold.Removal: "removal held", hold.Devices: "devices held", hold.Flapping: "flapping", hold.Contested: "contested", hold.Refused: "not accepted",
	hold.Addition: "addition held", hold.Eviction: "waiting", hold.Unread: "unknown", hold.Incomplete: "left as it is",
}

// String describes the hold.
func (h *Hold) String() string {
	if h.Until.IsZero() {
		return words[h.Reason] + ": " + h.Message
	}
	return fmt.Sprintf("%s until %s (in %s): %s", words[h.Reason], h.Until.UTC().Format(time.RFC3339), h.left.Round(time.Second), h.Message)
}

// Report is what the cluster reports about one Node. The zero Report belongs to files, in which nothing is known.
type Report struct {
	// Known is set if the report comes from a cluster.
	Known bool
	// Leader is the replica of the controller that writes Nodes. LeaderErr says why it is unknown.
	Leader    cluster.Leader
	LeaderErr error
	// EventsErr says why Events are unknown.
	EventsErr error

	// Omitted is the number of other nodes whose holds the controller does not publish.
	Omitted int

	now    time.Time
	events []corev1.Event // of the controller, the newest first
	open   bool           // every client that may create Events can write holds
}

// Read reads the report of a Node. The namespace and the instance are those of the controller.
func Read(ctx context.Context, c *cluster.Client, namespace, instance string, node *corev1.Node) *Report {
	r := &Report{Known: true}
	r.Leader, r.LeaderErr = c.Leader(ctx, namespace, instance)
	all, err := c.NodeEvents(ctx, node.Name)
	r.EventsErr = err
	r.now = c.Now()
	if namespaces, err := c.EventsOf(ctx, "Namespace", hold.Namespace, namespace); err == nil {
		for i := range namespaces {
			if e := &namespaces[i]; e.Name == hold.EventName(instance, namespace, "omitted") && e.ReportingController == hold.Component {
				r.Omitted, _ = strconv.Atoi(e.Annotations[hold.Omitted])
			}
		}
	}
	r.open = c.LacksPolicy(ctx, hold.PolicyName)
	for i := range all {
		// The UID of a Node in Events of the kubelet is the Node's name.
		if uid := all[i].InvolvedObject.UID; uid == "" || uid == node.UID || uid == types.UID(node.Name) {
			r.events = append(r.events, all[i])
		}
	}
	slices.SortStableFunc(r.events, func(a, b corev1.Event) int { return cmp.Compare(at(&b).UnixNano(), at(&a).UnixNano()) })
	return r
}

// at returns the time at which an Event was emitted last.
func at(e *corev1.Event) time.Time {
	out := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(out) {
			out = t
		}
	}
	return out
}

// Of returns the hold of a key, nil if none is published. Orphan is set if the NodeFeature of the node's worker is missing, and devices if the
// key depends on devices: holds without keys then apply.
func (r *Report) Of(kind keys.Kind, key string, orphan, devices bool) *Hold {
	var whole *Hold
	for i := range r.events {
		for _, h := range hold.Read(&r.events[i]) {
			if !h.Until.IsZero() && !h.Until.After(r.now) {
				continue
			}
			out := &Hold{Reason: h.Reason, Until: h.Until, Message: h.Why, left: h.Until.Sub(r.now)}
			if r.open {
				out.Message += " (not verified: without the policy " + hold.PolicyName + " every client that may create Events can have written this)"
			}
			if h.Has(kind, key) {
				return out
			}
			applies := h.More > 0 || len(h.Keys) == 0 && (h.Reason == hold.Removal && orphan || h.Reason == hold.Devices && devices)
			if whole == nil && applies {
				whole = out
			}
		}
	}
	return whole
}

// Event returns the message of the newest Event with a reason that is about a key, and its age; empty: there is none.
func (r *Report) Event(reason string, kind keys.Kind, key string) (message string, age time.Duration) {
	for i := range r.events {
		e := &r.events[i]
		if e.Reason == reason && slices.Contains(hold.KeysOf(e), hold.Key(kind, key)) {
			return e.Message, r.now.Sub(at(e)).Round(time.Second)
		}
	}
	return "", 0
}

// Nothing says what is known of a difference that no hold explains.
func (r *Report) Nothing() string {
	switch {
	case !r.Known:
		return ""
	case r.LeaderErr != nil:
		return fmt.Sprintf("whether the controller runs is unknown: %v", r.LeaderErr)
	case !r.Leader.Alive:
		return r.Leader.String()
	case r.EventsErr != nil:
		return fmt.Sprintf("%s; why it has not written this is unknown: %v", r.Leader, r.EventsErr)
	case r.Omitted > 0:
		return fmt.Sprintf("%s; it leaves keys as they are on many nodes, and does not publish why for %d of them; see its log", r.Leader, r.Omitted)
	}
	return fmt.Sprintf("%s; it reports no reason and may be about to write this; if the difference stays, see its log and assay doctor", r.Leader)
}
