// Package held finds out why a Node differs from what rules give: it reads the Events in which the controller reports what it leaves as it
// is for a while, and whether the controller runs.
package held

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/rules/keys"
)

// Hold says why the controller leaves a key of a Node as it is.
type Hold struct {
	// Reason is the reason of the Event: RemovalHeld, DevicesHeld, KeyFlapping, KeyContested or KeyRefused.
	Reason string `json:"reason"`
	// Until is the time at which the controller acts, unless the reason is gone before.
	Until time.Time `json:"until"`
	// Message says why, without the keys.
	Message string `json:"message"`

	left time.Duration // from now
}

// words begin the description of a hold.
var words = map[string]string{
	hold.Removal: "removal held", hold.Devices: "devices held", hold.Flapping: "flapping", hold.Contested: "contested", hold.Refused: "not accepted",
}

// String describes the hold.
func (h *Hold) String() string {
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

	now    time.Time
	events []corev1.Event // of the controller, the newest first
}

// Read reads the report of a Node. The namespace and the instance are those of the controller.
func Read(ctx context.Context, c *cluster.Client, namespace, instance string, node *corev1.Node) *Report {
	r := &Report{Known: true}
	r.Leader, r.LeaderErr = c.Leader(ctx, namespace, instance)
	all, err := c.NodeEvents(ctx, node.Name)
	r.EventsErr = err
	r.now = c.Now()
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

// Of returns the hold of a key, nil if none is reported. Removed is set if the key would be removed, and orphan if the NodeFeature of the
// node's worker is missing: holds of the whole Node then apply.
func (r *Report) Of(kind keys.Kind, key string, removed, orphan bool) *Hold {
	var whole, grace *Hold
	for i := range r.events {
		e := &r.events[i]
		if words[e.Reason] == "" {
			continue
		}
		until, why, ok := hold.Read(e.Message)
		if !ok || !until.After(r.now) {
			continue
		}
		h := &Hold{Reason: e.Reason, Until: until, Message: why, left: until.Sub(r.now)}
		switch {
		case hold.Names(e.Message, kind, key):
			return h
		case e.Reason != hold.Removal:
		case strings.HasPrefix(why, "removalGracePeriod") && grace == nil:
			grace = h
		case hold.More(e.Message) && whole == nil:
			whole = h
		}
	}
	switch {
	case orphan && grace != nil:
		return grace
	case removed:
		return whole
	}
	return nil
}

// Devices returns the hold of devices that count although ResourceSlices do not describe them now, nil if none is reported: it may be why the
// Node has a key, or another value, of a rule that reads devices.
func (r *Report) Devices() *Hold {
	for i := range r.events {
		e := &r.events[i]
		if until, why, ok := hold.Read(e.Message); ok && e.Reason == hold.Devices && until.After(r.now) {
			return &Hold{Reason: e.Reason, Until: until, Message: why, left: until.Sub(r.now)}
		}
	}
	return nil
}

// Event returns the message of the newest Event with a reason that names a key, and its age; empty: there is none.
func (r *Report) Event(reason string, kind keys.Kind, key string) (message string, age time.Duration) {
	for i := range r.events {
		// FeaturesLost writes the value of a taint before its effect.
		name, _, _ := strings.Cut(key, ":")
		if e := &r.events[i]; e.Reason == reason && (hold.Names(e.Message, kind, key) || kind == keys.Taint && hold.Names(e.Message, kind, name)) {
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
	}
	return fmt.Sprintf("%s; it reports no reason and may be about to write this; if the difference stays, see its log and assay doctor", r.Leader)
}
