package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// guard removes steps from a plan that must wait, and returns when to reconcile the node again; 0: no wait.
type guard func(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration)

// guards lists all guards in order. Each guard sees the steps that the previous ones allowed.
func (r *Reconciler) guards() []guard {
	return []guard{r.incomplete, r.unproven, r.unseenDevices, r.budget, r.flapping, r.refused, r.eviction, r.contested}
}

// guard applies all guards to a plan.
func (r *Reconciler) guard(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	var again, wait time.Duration
	for _, g := range r.guards() {
		p, wait = g(ctx, p, j)
		again = sooner(again, wait)
	}
	return p, again
}

// sooner returns the shorter of two durations; 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 {
		return b
	}
	if b <= 0 {
		return a
	}
	return min(a, b)
}

// retryIncomplete is the delay before a node is reconciled again whose NodeFeatures the cache lacks. They normally trigger a pass when
// they arrive, or when a watch is opened again.
const retryIncomplete = time.Minute

// incomplete keeps keys that this process has never seen given while its cache lacks NodeFeatures of the node: it could have been filled
// from a truncated list. An edit of a rule does not explain their removal: the new rule may give them from what is missing. So may another
// object that names a key which this process has seen given. A value that this process did not give may follow from what is missing, too,
// although something else gives the key another value. Such a node does not become ready.
func (r *Reconciler) incomplete(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	doubtful := func(s plan.Step) bool {
		return s.Takes() && !r.switchedOff(s) && (!j.gave(s) || s.Op == plan.Remove && j.namedElsewhere(s) || s.Op == plan.Change && !j.gaveOld(s))
	}
	ready := plan.StateOf(j.node).Ready()
	if opens := r.ready && (ready == nil || ready.Status != corev1.ConditionTrue); !opens && !slices.ContainsFunc(p.Steps, doubtful) {
		return p, 0
	}
	again := retryIncomplete
	switch err := r.inputs.ConfirmStart(ctx, j.state); {
	case err == nil:
		return p, 0
	case !errors.Is(err, inputs.ErrStale):
		logf.FromContext(ctx).Info("Holding removals: cannot list NodeFeatures", "node", j.node.Name, "error", err.Error())
		again = retryHeld
	}
	j.incomplete = true
	return p.Without(doubtful), again
}

// unproven keeps what the node had when this process first saw it until its worker publishes something: which object gave the keys
// is unknown, and so is whether they should be removed. Later changes are known and applied immediately, but a key that another
// object names stays: it may follow from what the worker has published. The node is reconciled again after the grace period.
func (r *Reconciler) unproven(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	if !j.blind {
		r.reportGrace(ctx, j.state, j.known, j.node, false)
		return p, 0
	}
	if j.known.kept == nil && !j.incomplete { // otherwise the plan does not show what the node would lose
		j.known.kept = map[string]bool{}
		for _, s := range p.Steps {
			if s.Takes() && !r.switchedOff(s) {
				j.known.kept[name(s)] = true
			}
		}
	}
	left := p.Without(func(s plan.Step) bool {
		if !s.Takes() || r.switchedOff(s) {
			return false
		}
		return j.known.kept[name(s)] && !j.explained(s) || s.Op == plan.Remove && j.namedElsewhere(s)
	})
	r.reportGrace(ctx, j.state, j.known, j.node, len(left.Steps) < len(p.Steps))
	return left, 0
}

// unseenDevices keeps keys of objects that read devices, and that this process has not seen given, for the grace period after it began to
// read ResourceSlices, and as long as it cannot read them: a driver that restarts at that time has no slices, and unlike an earlier process
// this one has not seen them.
func (r *Reconciler) unseenDevices(_ context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	left := j.state.Devices.Unseen
	if left <= 0 {
		return p, 0
	}
	reads := func(g provenance.Giver) bool {
		set := j.now.sets[g.ID]
		return set != nil && (set.ReadsOthers() || slices.ContainsFunc(set.Reads(), facts.IsDevices))
	}
	kept := p.Without(func(s plan.Step) bool {
		return s.Op == plan.Remove && !s.Mark && !j.gave(s) && !r.switchedOff(s) && !j.explained(s) && slices.ContainsFunc(j.givers(s), reads)
	})
	if len(kept.Steps) == len(p.Steps) {
		return p, 0
	}
	return kept, left
}

// budget holds removals that no change of the responsible rules explains when too many nodes are affected. A key that gets another value is
// no loss: a rolling upgrade of the kernel changes values on all nodes. The condition of a NodeBaseline that changes from True is a loss:
// other programs keep pods off nodes because of it.
func (r *Reconciler) budget(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	var takes []plan.Step
	var names []string
	unknown := false
	for _, s := range p.Steps {
		if s.Op != plan.Remove && !j.gates(s) || s.Mark || r.switchedOff(s) {
			continue
		}
		if cause := j.why(s); cause != provenance.Rules {
			takes, names = append(takes, s), append(names, name(s))
			unknown = unknown || cause == provenance.Unknown
		}
	}
	if len(takes) == 0 {
		r.breaker.Withdraw(j.node.Name)
		return p, 0
	}
	why := "removalBudget: too many nodes lose labels or resources at once; confirm the removals to release them"
	var (
		ok   bool
		wait time.Duration
	)
	if unknown {
		why = "removalBudget: it is not known which rule gave them; confirm the removals to release them"
		ok, wait = r.breaker.Insist(j.node.Name, names...)
	} else {
		ok, wait = r.breaker.Allow(j.node.Name, r.fleetSize(ctx), names...)
	}
	if ok {
		return p, 0
	}
	r.metrics.held.Inc()
	held := make([]heldStep, len(takes))
	for i, s := range takes {
		held[i] = heldStep{s, r.clock.Now().Add(wait)}
	}
	r.reportHeld(ctx, j, hold.Removal, why, held, j.describe)
	return p.Without(func(s plan.Step) bool { return slices.Contains(names, name(s)) }), wait
}

// gates reports whether a step changes the condition of a NodeBaseline from True to another status.
func (j *judge) gates(s plan.Step) bool {
	const conforms = string(corev1.ConditionTrue) + " "
	if s.Kind != keys.Condition || s.Op != plan.Change || !strings.HasPrefix(s.Old, conforms) || strings.HasPrefix(s.New, conforms) {
		return false
	}
	set, ok := j.outcome.Giver(s.Kind, s.Key)
	if !ok {
		return false
	}
	_, ok = baseline.Of(set.Name)
	return ok
}

// flapping leaves flapping keys alone unless the rules caused the change.
func (r *Reconciler) flapping(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	again := time.Duration(0)
	if !r.changes.Any(j.node.Name) {
		return p, 0
	}
	var held []heldStep
	p = p.Without(func(s plan.Step) bool {
		if s.Mark || s.Op == plan.Adopt || s.Op == plan.Forget {
			return false
		}
		wait, flaps := r.changes.Held(j.node.Name, name(s))
		if !flaps || j.explained(s) {
			return false
		}
		if _, contested := j.known.contests(s, r.clock.Now()); contested || j.known.undone(s) {
			return false // another client changes it, which a later guard limits
		}
		again, held = sooner(again, wait), append(held, heldStep{s, r.clock.Now().Add(wait)})
		return true
	})
	r.reportHeld(ctx, j, hold.Flapping, whyFlapping, held, name)
	return p, again
}

// refused skips values that the API server rejected recently.
func (r *Reconciler) refused(_ context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	again, now := time.Duration(0), r.clock.Now()
	p = p.Without(func(s plan.Step) bool {
		wait, refused := j.known.refuses(s, now)
		if refused {
			again = sooner(again, wait)
		}
		return refused
	})
	return p, again
}

// nodeCountAge is how long a count of Nodes is used for the budget: counting lists their names, and each label that changes needs it.
const nodeCountAge = time.Second

// nodeCount is the last count of Nodes for the budget.
type nodeCount struct {
	mu    sync.Mutex
	nodes int
	at    time.Time
}

// fleetSize returns the number of Nodes in the cluster not long ago, to compute the share that can lose keys.
func (r *Reconciler) fleetSize(ctx context.Context) int {
	c := &r.count
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := r.clock.Now(); c.nodes == 0 || now.Sub(c.at) >= nodeCountAge {
		c.nodes, c.at = r.countNodes(ctx), now
	}
	return c.nodes
}

// countNodes returns the number of Nodes in the cluster.
func (r *Reconciler) countNodes(ctx context.Context) int {
	names, err := nodecache.Names(ctx, r.cache)
	if err != nil {
		return 0
	}
	return len(names)
}

// switchedOff reports whether a step removes an output that the configuration disables: that needs no other evidence.
func (r *Reconciler) switchedOff(s plan.Step) bool {
	switch s.Kind {
	case keys.Label:
		return r.disable.Labels
	case keys.Annotation:
		return r.disable.Annotations
	case keys.Resource:
		return r.disable.ExtendedResources
	case keys.Condition:
		return false
	}
	return !r.policy.Taints
}
