package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules/plan"
)

// heldStep is a step of a plan that has to wait.
type heldStep struct {
	plan.Step
	until time.Time
}

// The reasons why steps wait, for people.
var (
	whyFlapping  = fmt.Sprintf("it changed %d times within %s, and stays until it has been stable for as long", flap.Limit, flap.Window)
	whyContested = fmt.Sprintf("another client has changed it back %d times within %s", flap.CorrectionLimit, flap.CorrectionWindow)
)

// sameTime is the difference of two times that are computed from the same one in different passes.
const sameTime = time.Second

// reportHeld emits an Event and logs which steps wait, once for each step and time. An Event names all steps that wait for the same time.
func (r *Reconciler) reportHeld(ctx context.Context, j *judge, reason, why string, list []heldStep, describe func(plan.Step) string) {
	byTime := map[time.Time][]string{}
	var times []time.Time
	for _, s := range list {
		if !j.known.unreported(reason+" "+name(s.Step), s.until, r.clock.Now()) {
			continue
		}
		at := s.until.Truncate(sameTime)
		if byTime[at] == nil {
			times = append(times, at)
		}
		byTime[at] = append(byTime[at], describe(s.Step))
	}
	for _, at := range times {
		r.emitHeld(ctx, j.node, reason, why, at, byTime[at])
	}
}

func (r *Reconciler) emitHeld(ctx context.Context, node *corev1.Node, reason, why string, until time.Time, keys []string) {
	r.events.Event(node, corev1.EventTypeWarning, reason, hold.Message(reason, until, why, keys))
	logf.FromContext(ctx).Info("Leaving keys as they are", "node", node.Name, "event", reason, "until", until.UTC(), "reason", why, "keys", hold.Some(keys))
}

// unreported reports whether a hold is new: no Event has reported it with this time. It remembers that one does now.
func (m *memo) unreported(what string, until, now time.Time) bool {
	for known, at := range m.reported {
		if at.Before(now) {
			delete(m.reported, known)
		}
	}
	if before, ok := m.reported[what]; ok && until.Sub(before).Abs() <= sameTime {
		return false
	}
	if m.reported == nil {
		m.reported = map[string]time.Time{}
	}
	m.reported[what] = until
	return true
}

// reportGrace emits an Event while the features of a worker's deleted object count. Of a node whose worker this process has never seen it
// does so only if the node keeps something: the node may be without a worker on purpose.
func (r *Reconciler) reportGrace(ctx context.Context, state inputs.State, known *memo, node *corev1.Node, keeps bool) {
	if state.Held <= 0 || state.Blind && !keeps {
		return
	}
	until := r.clock.Now().Add(state.Held)
	if !known.unreported(hold.Removal, until, r.clock.Now()) {
		return
	}
	why := "removalGracePeriod: the node's worker has published no NodeFeature since this controller started"
	if state.Own != nil {
		why = fmt.Sprintf("removalGracePeriod: NodeFeature %s of the node's worker was deleted; its features count until then", state.Own.Publisher())
	}
	r.emitHeld(ctx, node, hold.Removal, why, until, nil)
}
