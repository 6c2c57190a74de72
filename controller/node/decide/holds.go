package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Hold is what remains of a plan after a reason for steps to wait was considered.
type Hold struct {
	// Plan lacks the steps that have to wait.
	Plan *plan.Plan
	// Again is when to decide again; 0: not because of this.
	Again time.Duration
	// Needs is the evidence that is missing; empty: none is. The other fields do not count then. The others are as in Decision.
	Needs                Need
	Losing               []string
	Unattributed         bool
	Hits, HealthFeatures []string
}

// holds are the reasons for steps to wait, in order. Each sees the steps that the previous ones allow.
//
// The order matters. What is missing in the plan must not be counted, and what is counted must be written:
//
//   - The first five are about what this process does not know. The budget comes after them: a removal that only seems to be due must not
//     use it up, nor be reported as a loss.
//   - The budget comes before flapping, so that a removal that waits for both is known as a loss to the administrator who confirms removals.
//   - What follows from the health of a node counts once it would be written, and before the node takes its turn with a taint that evicts pods.
//   - A node takes its turn in the pace of evictions only once nothing but another client can still hold the taint.
//   - Keys that another client changes come last, because the steps that are left then are the corrections of this pass.
var holds = []func(*Pass, *plan.Plan) Hold{
	undefined, incomplete, unpublished, unread, unseenDevices, overBudget, flapping, refused, overHealth, evicting, contested,
}

// undefined keeps everything as it is while NodeFeatures have no definition: all were deleted with it, and no user has done that. Afterwards
// their publishers have the grace period to publish again, in which what the rules do not explain stays.
func undefined(p *Pass, in *plan.Plan) Hold {
	switch u := p.Features.Undefined; {
	case u.Absent:
		p.incomplete = true
		return Hold{Plan: p.without(in, hold.Unread, whyUndefined, time.Time{}, func(plan.Step) bool { return true })}
	case u.Returning > 0:
		left := p.without(in, hold.Removal, whyReturning, p.Now.Add(u.Returning), func(s plan.Step) bool { return p.Settings.takes(s) && !p.explained(s) })
		if len(left.Steps) < len(in.Steps) {
			return Hold{Plan: left, Again: u.Returning}
		}
	}
	return Hold{Plan: in}
}

// incomplete keeps keys that this process has never seen given while its cache lacks NodeFeatures of the node: it could have been filled
// from a truncated list. An edit of a rule does not explain their removal: the new rule may give them from what is missing. So may another
// object that names a key which this process has seen given. A value that this process did not give may follow from what is missing, too,
// although something else gives the key another value. Such a node does not become ready.
func incomplete(p *Pass, in *plan.Plan) Hold {
	doubtful := func(s plan.Step) bool {
		k := p.key(s)
		return p.Settings.takes(s) && (!k.Given || s.Op == plan.Remove && k.Elsewhere || s.Op == plan.Change && !k.GivenOld)
	}
	ready := plan.StateOf(p.Node).Ready()
	if opens := p.Settings.Ready && (ready == nil || ready.Status != corev1.ConditionTrue); !opens && !slices.ContainsFunc(in.Steps, doubtful) {
		return Hold{Plan: in}
	}
	start := p.Evidence.Start
	switch {
	case start == nil:
		return Hold{Needs: NeedStart}
	case start.OK:
		return Hold{Plan: in}
	}
	p.incomplete = true
	return Hold{Plan: p.without(in, hold.Incomplete, whyIncomplete, time.Time{}, doubtful), Again: start.Wait}
}

// unpublished keeps what the node had when this process first saw it until its worker publishes something: which object gave the keys
// is unknown, and so is whether they should be removed. Later changes are known and applied immediately, but a key that another
// object names stays: it may follow from what the worker has published. The node is reconciled again after the grace period.
func unpublished(p *Pass, in *plan.Plan) Hold {
	f, until := &p.Features, time.Time{}
	if f.Held > 0 {
		until = p.Now.Add(f.Held)
	}
	why := "removalGracePeriod: the node's worker has published no NodeFeature since this controller started"
	if f.Worker != nil {
		why = fmt.Sprintf("removalGracePeriod: NodeFeature %s of the node's worker was deleted; its features count until then", f.Worker.Publisher)
	}
	if !f.Unknown {
		if f.Held > 0 {
			p.holdWhole(hold.Removal, why, until)
		}
		return Hold{Plan: in}
	}
	if p.Memory.Kept == nil && !p.incomplete { // otherwise the plan does not show what the node would lose
		p.Memory.Kept = map[string]bool{}
		for _, s := range in.Steps {
			if p.Settings.takes(s) {
				p.Memory.Kept[name(s)] = true
			}
		}
	}
	return Hold{Plan: p.without(in, hold.Removal, why, until, func(s plan.Step) bool {
		return p.Settings.takes(s) && (p.Memory.Kept[name(s)] && !p.explained(s) || s.Op == plan.Remove && p.key(s).Elsewhere)
	})}
}

// unread keeps keys as they are whose value is unknown because the worker has not read a source since the node booted, without a time limit:
// that a source does not answer is not evidence that the node lacks what it finds. The worker publishes again when it does.
func unread(p *Pass, in *plan.Plan) Hold {
	return Hold{Plan: p.without(in, hold.Unread, p.whyUnread(), time.Time{}, func(s plan.Step) bool { return p.key(s).Undecided })}
}

// without returns a plan without the steps that drop selects, and publishes that they wait.
func (p *Pass) without(in *plan.Plan, reason, why string, until time.Time, drop func(plan.Step) bool) *plan.Plan {
	return in.Without(func(s plan.Step) bool {
		dropped := drop(s)
		if dropped && !s.Mark {
			p.hold(reason, why, until, s)
		}
		return dropped
	})
}

// unseenDevices keeps keys of objects that read devices, and that this process has not seen given, for the grace period after it began to
// read ResourceSlices, and as long as it cannot read them: a driver that restarts at that time has no slices, and unlike an earlier process
// this one has not seen them. A value that this process has not given stays, too: it can count the devices of two pools, one of which is away. Only conditions, which
// say what is there now, change at once.
func unseenDevices(p *Pass, in *plan.Plan) Hold {
	if p.Features.DevicesUnseen <= 0 {
		return Hold{Plan: in}
	}
	left := p.without(in, hold.Devices, whyUnseen, p.Now.Add(p.Features.DevicesUnseen), func(s plan.Step) bool {
		k := p.key(s)
		return p.Settings.takes(s) && k.Devices && !p.explained(s) && (s.Op != plan.Remove || !k.Given) &&
			(s.Op != plan.Change || !k.GivenOld && s.Kind != keys.Condition)
	})
	if left == in {
		return Hold{Plan: in}
	}
	return Hold{Plan: left, Again: p.Features.DevicesUnseen}
}

// overBudget holds removals that no change of the responsible rules explains when too many nodes are affected. A key that gets another
// value is not lost: a rolling upgrade of the kernel changes values on all nodes. The condition of a NodeBaseline that changes from True is a
// loss: other programs keep pods off nodes because of it.
func overBudget(p *Pass, in *plan.Plan) Hold {
	var names []string
	unknown := false
	for _, s := range in.Steps {
		if s.Op != plan.Remove && !p.leavesBaseline(s) || s.Mark || p.Settings.Excludes(s.Kind) {
			continue
		}
		if cause := p.why(s); cause != record.Rules {
			names = append(names, name(s))
			unknown = unknown || cause == record.Unknown
		}
	}
	if len(names) == 0 {
		return Hold{Plan: in}
	}
	budget := p.Evidence.Budget
	switch {
	case budget == nil:
		return Hold{Needs: NeedBudget, Losing: names, Unattributed: unknown}
	case budget.OK:
		return Hold{Plan: in}
	}
	why := "removalBudget: too many nodes lose labels or resources at once; confirm the removals to release them"
	if unknown {
		why = "removalBudget: it is not known which rule gave them; confirm the removals to release them"
	}
	left := p.without(in, hold.Removal, why, p.Now.Add(budget.Wait), func(s plan.Step) bool { return slices.Contains(names, name(s)) })
	return Hold{Plan: left, Again: budget.Wait}
}

// leavesBaseline reports whether a step changes the condition of a NodeBaseline from True to another status.
func (p *Pass) leavesBaseline(s plan.Step) bool {
	const conforms = string(corev1.ConditionTrue) + " "
	return s.Kind == keys.Condition && s.Op == plan.Change && p.key(s).Baseline &&
		strings.HasPrefix(s.Old, conforms) && !strings.HasPrefix(s.New, conforms)
}

// flapping leaves flapping keys alone unless the rules caused the change.
func flapping(p *Pass, in *plan.Plan) (out Hold) {
	flaps := maps.Clone(p.Memory.Flapping)
	maps.DeleteFunc(flaps, func(_ string, f Flapping) bool { return !f.Until.After(p.Now) })
	out.Plan = in.Without(func(s plan.Step) bool {
		if s.Mark || s.Op == plan.Adopt || s.Op == plan.Forget {
			return false
		}
		k := p.key(s)
		// What another client changes is limited by a later hold.
		if k.Flaps <= 0 || p.explained(s) || p.contests(s) > 0 || p.undone(s) {
			delete(flaps, name(s))
			return false
		}
		until := p.Now.Add(k.Flaps)
		p.hold(hold.Flapping, whyFlapping, until, s)
		if flaps == nil {
			flaps = map[string]Flapping{}
		}
		flaps[name(s)] = Flapping{Until: until, Objects: k.Objects()}
		return true
	})
	p.Memory.Flapping = nil
	if len(flaps) > 0 {
		p.Memory.Flapping = flaps
	}
	for _, f := range flaps { // also of keys that have their old value again: until then, they are reported
		out.Again = Sooner(out.Again, f.Until.Sub(p.Now))
	}
	return out
}

// refused skips values that the API server rejected recently.
func refused(p *Pass, in *plan.Plan) (out Hold) {
	out.Plan = in.Without(func(s plan.Step) bool {
		wait := p.Memory.refuses(s, p.Now)
		if wait <= 0 {
			return false
		}
		out.Again = Sooner(out.Again, wait)
		p.hold(hold.Refused, whyRefused(p.Memory.Refusals[name(s)].Why), p.Now.Add(wait), s)
		return true
	})
	return out
}

// overHealth holds taints, and changes of what conditions say, that rules give because of the health of the node when too many nodes are hit at
// once: a cause that so many nodes share is more likely the rule, or the kernel whose counters it reads, than their hardware. That an
// administrator has just written the rule explains nothing. A taint that another client has removed hits the node no more than before.
func overHealth(p *Pass, in *plan.Plan) Hold {
	out := Hold{Plan: in}
	for _, s := range in.Steps {
		if k := p.key(s); k.Health && !p.Settings.Excludes(s.Kind) && !p.undone(s) {
			out.Hits = append(out.Hits, name(s))
			out.HealthFeatures = append(out.HealthFeatures, k.HealthFeatures...)
		}
	}
	if len(out.Hits) == 0 {
		return out
	}
	health := p.Evidence.Health
	if health == nil {
		out.Needs = NeedHealth
		return out
	}
	if health.OK {
		return Hold{Plan: in}
	}
	const why = "healthBudget: too many nodes are hit at once by rules that read the health of nodes; confirm the additions to release them"
	left := p.without(in, hold.Addition, why, p.Now.Add(health.Wait), func(s plan.Step) bool { return slices.Contains(out.Hits, name(s)) })
	return Hold{Plan: left, Again: health.Wait}
}

// evicting delays taints that evict pods, and those of lost features, according to the configured pace. Everything else is written.
func evicting(p *Pass, in *plan.Plan) Hold {
	if p.Settings.Withholding.All || !p.Settings.beginsEviction(in, p.Node) {
		p.Memory.Waits = ""
		return Hold{Plan: in}
	}
	pace := p.Evidence.Pace
	switch {
	case pace == nil:
		return Hold{Needs: NeedPace}
	case pace.OK:
		p.Memory.Waits = ""
		return Hold{Plan: in, Again: pace.Wait}
	}
	p.Memory.Waits = pace.Why
	return Hold{Plan: p.without(in, hold.Eviction, "a taint that evicts pods has to wait: "+pace.Why, time.Time{}, p.Settings.Evicts), Again: pace.Wait}
}

// contested leaves keys alone for a while that another client keeps changing back. What is left of the plan are the corrections of this pass.
// Nodes whose keys come back after a pause take turns.
func contested(p *Pass, in *plan.Plan) (out Hold) {
	p.Memory.Fixing = nil
	fixing := map[string]string{}
	returns, master := false, false
	out.Plan = in.Without(func(s plan.Step) bool {
		count, wait := p.Memory.Corrections.Of(name(s), s.New), p.contests(s)
		switch {
		case wait > 0:
			out.Again = Sooner(out.Again, wait)
			p.hold(hold.Contested, whyContested, p.Now.Add(wait), s)
		case p.undone(s) || count > 0 && p.key(s).GivenNew:
			fixing[name(s)] = s.New
			returns = returns || count >= flap.CorrectionLimit
		default:
			return false
		}
		master = master || count > 0 && !s.Recorded()
		return wait > 0
	})
	switch {
	case !returns:
		p.Memory.Turn = time.Time{}
	case p.Memory.Turn.IsZero() && p.Evidence.Turn.IsZero():
		return Hold{Needs: NeedTurn}
	case p.Memory.Turn.IsZero():
		p.Memory.Turn = p.Evidence.Turn
	}
	if wait := p.Memory.Turn.Sub(p.Now); returns && wait > 0 {
		out.Again = Sooner(out.Again, wait)
		out.Plan = p.without(out.Plan, hold.Contested, whyContested, p.Memory.Turn, func(s plan.Step) bool { _, fixes := fixing[name(s)]; return fixes })
		fixing = nil
	} else {
		p.Memory.Turn = time.Time{}
	}
	if len(fixing) > 0 {
		p.Memory.Fixing = fixing
	}
	if master && (p.Memory.Mastered.IsZero() || p.Now.Sub(p.Memory.Mastered) >= masterInterval) {
		if p.Evidence.Master == nil {
			return Hold{Needs: NeedMaster}
		}
		p.reportMaster(*p.Evidence.Master)
	}
	return out
}

// contests returns how long to leave the key of a step alone because another client keeps changing it back; 0: none does.
func (p *Pass) contests(s plan.Step) time.Duration {
	until := p.Memory.Corrections.Held(name(s), s.New)
	if until.IsZero() {
		return 0
	}
	return max(0, until.Sub(p.Now))
}

// undone reports whether a step restores a value that the Node had after the last pass: rules give the same as then, and another client has
// changed it since. The record on the Node does not matter: another master takes the key out of the record, too. A kubelet that starts resets
// unknown resources to 0, which does not count, however often it starts.
func (p *Pass) undone(s plan.Step) bool {
	if s.Kind == keys.Resource && s.Old == "0" {
		return false
	}
	if s.Mark || s.Op != plan.Add && s.Op != plan.Change || p.Memory.Unsure || p.Memory.Left[name(s)] {
		return false
	}
	return p.key(s).GivenNew
}
