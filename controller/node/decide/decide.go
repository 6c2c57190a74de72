// Package decide decides what to write to a Node, and what has to wait.
//
// It uses no client, emits no Events and has no clock: everything that a decision depends on is in a Pass, and equal passes give equal
// decisions. Where a decision needs more than the caller has gathered, it says so in Needs; the caller gets the evidence and calls Decide
// again.
package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Pass is everything that the decision about one node depends on.
type Pass struct {
	Settings *Settings
	Now      time.Time
	Node     *corev1.Node
	// Age is the time since the Node was created.
	Age time.Duration
	// Rules are what the rules want of the node.
	Rules desired.Outputs
	// Reason returns what is known about a key that a plan changes, at a time.
	Reason   func(plan.Step, time.Time) Key `json:"-"`
	Features Features
	// Losses are those of pods on the node, if there is a taint for them.
	Losses   loss.Verdict
	Memory   Memory
	Evidence Evidence

	keys       map[string]Key // of the steps of what is wanted, by name
	events     []Event
	holds      []hold.Hold
	incomplete bool // the cache lacks NodeFeatures of the node
}

// Key is what is known about a key that a plan changes.
type Key struct {
	desired.Reason
	// Flaps is how long to leave the key alone because it changes too often; 0: it does not.
	Flaps time.Duration `json:",omitzero"`
}

// KeyOf returns what is known about a key that a plan changes, at a time.
func KeyOf(origins *desired.Origins, changes flap.History, s plan.Step, now time.Time) Key {
	var flaps time.Duration
	if !s.Mark {
		flaps = changes.Held(name(s), now)
	}
	return Key{origins.Reason(s, flaps > 0), flaps}
}

// Features are what is known about the features of a node.
type Features struct {
	// Worker is the object of the node's worker, the last one seen while Held; nil: there is none, or it is left out.
	Worker *Worker
	// LeftOut is why the worker's object is left out; empty: it is not. MissingSets are the NodeFeatureSets that it lacks; none: that is not
	// why.
	LeftOut     string
	MissingSets []string
	// Held is the rest of the time for which the features of the worker's deleted object count; 0: the object exists, or does not count any more.
	Held time.Duration
	// Unknown is set if it is unknown to this process what the worker has published.
	Unknown bool
	// Undefined says whether NodeFeatures are unknown because of their definition.
	Undefined Undefined `json:",omitzero"`
	// Generation changes with the NodeFeatures of the node.
	Generation string
	// DevicesUnseen is for how long this process may lack devices of the node that an earlier one has seen; 0: it has waited long enough.
	DevicesUnseen time.Duration
	// DevicesHeld is for how long the last complete devices of a pool count that is incomplete or gone; 0: there is none.
	DevicesHeld time.Duration `json:",omitzero"`
	// DevicesIncomplete are the drivers that have not published all devices of the node.
	DevicesIncomplete []string
	// DevicesOver describes the pools that are left out because the node has too many devices; empty: there are none.
	DevicesOver string `json:",omitzero"`
}

// Undefined says whether the NodeFeatures of all nodes are unknown because of their definition.
type Undefined struct {
	// Absent is set while there is none: all NodeFeatures were deleted with it.
	Absent bool `json:",omitzero"`
	// Returning is the rest of the time that publishers may take to publish again after that; 0: they had their time.
	Returning time.Duration `json:",omitzero"`
}

// Worker is the object of a node's worker.
type Worker struct {
	// Publisher is the namespace and name of the object.
	Publisher string
	// Boot is the boot that the worker has examined; empty: it does not say.
	Boot string
	// Unread are the sources that the worker has not read since the node booted.
	Unread []string `json:",omitzero"`
	// MissingSets are the NodeFeatureSets that the worker found missing, as it has written them.
	MissingSets string
}

// Evidence is what the caller has found out because an earlier decision of this pass needed it; nil and false: nothing did.
type Evidence struct {
	// Start says whether the cache has all NodeFeatures of the node that existed when this process started, and if not, when to look again.
	Start *Answer
	// Budget says whether the node may lose keys.
	Budget *Answer
	// Health says whether the node may be hit by what rules do because of its health.
	Health *Answer `json:",omitzero"`
	// Pace says whether the node may get a taint that evicts pods.
	Pace *Answer
	// Listed is set if the API server has no NodeFeature of the node that the cache lacks.
	Listed bool
	// Turn is when contested keys of the node may be written again; the zero time: unknown.
	Turn time.Time `json:",omitzero"`
	// Master is the client that last wrote the record of labels on the Node, other than this controller; empty: it cannot be found out.
	Master *string `json:",omitzero"`
	// Proven is set if the rules give the same with the features that the API server has.
	Proven bool
}

// Answer is yes, or why not and how long to wait before asking again. A yes can come with a wait.
type Answer struct {
	OK   bool
	Why  string
	Wait time.Duration
}

// Need names evidence.
type Need string

// What a decision can need, see Evidence. No pass starts without Start, and no plan is complete without the others.
const (
	NeedStart  Need = "start"
	NeedBudget Need = "budget"
	NeedHealth Need = "health"
	NeedPace   Need = "pace"
	NeedTurn   Need = "turn"
	NeedMaster Need = "master"
	NeedList   Need = "list"
	NeedProof  Need = "proof"
)

// Decision is what to write to a node, and what to say and remember.
type Decision struct {
	// Needs is the evidence that is missing, in the order in which to get it; empty: the decision is complete. If evidence cannot be got,
	// the pass ends: Events and Memory hold nevertheless, and nothing is written.
	Needs []Need
	// Losing are the names of the keys whose removal needs the budget. Unattributed is set if it is unknown for one of them which object gave it.
	Losing       []string
	Unattributed bool
	// Hits are the keys that need the budget of health, and HealthFeatures what their rules read.
	Hits, HealthFeatures []string
	// Doubtful are the steps that need a proof.
	Doubtful []plan.Step

	// Wanted is the plan without holds, Allowed the part that nothing holds back, Plan that with what the controller itself writes: the
	// condition FeaturesReady, unmet labels of requests, and the start-up taint.
	Wanted, Allowed, Plan *plan.Plan
	// Again is when to decide again; 0: nothing waits.
	Again time.Duration
	// Holds are the reasons why keys stay as they are, complete unless evidence is missing.
	Holds []hold.Hold
	// Events are for now, Written those for when the plan has been written.
	Events, Written []Event
	// Owners are the keys that the plan adds and the objects that give them, to be recorded before the write.
	Owners []record.Gave
	// Removals describes the keys that the plan removes or changes, by cause. Lost are the removals that follow from features.
	Removals map[record.Cause][]string
	Lost     []plan.Step
	// BeginsEviction is set if the plan adds a taint that evicts pods to a node that has none.
	BeginsEviction bool
	// FailsOpen is set if the plan removes the start-up taint of a node that is not known to be ready.
	FailsOpen bool
	// Memory is what to remember until the next pass, before the write; see Memory.Finish.
	Memory Memory

	keys   map[string]Key
	frozen bool
}

// Decide decides about one node. It does not modify the pass.
func Decide(p Pass) Decision {
	p.holdDevices()
	p.reportDevicesOver()
	generation, again := p.generation()
	d := Decision{Wanted: p.wanted(generation), frozen: p.Rules.Failed != nil}
	p.keys = make(map[string]Key, len(d.Wanted.Steps))
	for _, s := range d.Wanted.Steps {
		p.keys[name(s)] = p.Reason(s, p.Now)
	}
	d.keys, d.Allowed, d.Again = p.keys, d.Wanted, again
	for _, hold := range holds {
		got := hold(&p, d.Allowed)
		if got.Needs != "" {
			d.Needs, d.Losing, d.Unattributed = []Need{got.Needs}, got.Losing, got.Unattributed
			d.Hits, d.HealthFeatures = got.Hits, got.HealthFeatures
			return d
		}
		d.Allowed, d.Again = got.Plan, Sooner(d.Again, got.Again)
	}
	d.Events, d.Memory, d.Holds = p.events, p.Memory, p.holds
	d.Plan = d.Allowed
	if p.Settings.Withholding.All {
		return d
	}
	p.requireProof(&d)
	if len(d.Needs) > 0 {
		return d
	}
	p.complete(&d)
	return d
}

// requireProof says which evidence a plan needs that takes keys away, or that taints the node for what it lacks.
//
// The API server must agree that the features of the node explain what the plan takes. A cache that was filled from a truncated list, or
// that holds wrong values, must not cost a node its labels. In the first pass of a process over a node, this includes changed values.
func (p *Pass) requireProof(d *Decision) {
	list := false
	for _, s := range d.Allowed.Steps {
		if s.Op == plan.Add && p.lost(s) {
			list = true
		}
		if !p.Settings.takes(s) || p.explained(s) || s.Op != plan.Remove && p.Memory.Given != nil {
			continue
		}
		d.Doubtful = append(d.Doubtful, s)
		list = list || !p.key(s).Given // what gave the key is unknown to this process
	}
	if list && !p.Evidence.Listed {
		d.Needs = append(d.Needs, NeedList)
	}
	if len(d.Doubtful) > 0 && !p.Evidence.Proven {
		d.Needs = append(d.Needs, NeedProof)
	}
}

// complete adds what the controller itself writes, and what follows from the plan.
func (p *Pass) complete(d *Decision) {
	unmet := p.unmet(d.Allowed)
	d.Plan = p.withReady(d, unmet.in(d.Allowed), unmet.condition())
	var late bool
	var again time.Duration
	d.Plan, late, again = p.open(d.Plan)
	d.Again, d.FailsOpen = Sooner(d.Again, again), late
	d.BeginsEviction = p.Settings.beginsEviction(d.Plan, p.Node)
	d.Owners = p.owners(d.Allowed)
	d.Removals = map[record.Cause][]string{}
	for _, s := range d.Allowed.Steps {
		if !p.Settings.takes(s) {
			continue
		}
		cause := p.why(s)
		d.Removals[cause] = append(d.Removals[cause], p.describe(s))
		if cause == record.Facts && s.Op == plan.Remove {
			d.Lost = append(d.Lost, s)
		}
	}
	d.Written = append(append(p.unmetEvents(unmet), p.lossEvents(d.Plan)...), p.lateEvents(d.Plan, late)...)
}

// name returns a key with its kind.
func name(s plan.Step) string { return hold.Key(s.Kind, s.Key) }

// key returns what is known about the key of a step.
func (p *Pass) key(s plan.Step) Key { return p.keys[name(s)] }

// why returns the cause of a step that removes a key.
func (p *Pass) why(s plan.Step) record.Cause {
	if fail := p.Settings.FailTaint; s.Kind == keys.Taint && fail != nil && s.Key == keys.TaintName(*fail) {
		return record.Rules // no rule produces the failure mark: it is removed with the failure
	}
	if p.lost(s) {
		return record.Rules // nor this one: it is removed when the features are back
	}
	return p.key(s).Cause
}

// explained reports whether a change of the rules is the cause of a step, be it an addition or a removal.
func (p *Pass) explained(s plan.Step) bool {
	if s.Takes() {
		return p.why(s) == record.Rules
	}
	return p.key(s).Overruled
}

// lost reports whether a step changes the taint of lost features, and not one of a rule with the same key.
func (p *Pass) lost(s plan.Step) bool {
	return p.Settings.taintsLoss(s) && !p.key(s).Given && p.key(s).By.ID == ""
}

// owners returns the keys that a plan adds to the node, with the objects that give them.
func (p *Pass) owners(of *plan.Plan) []record.Gave {
	out := make([]record.Gave, 0, len(of.Steps))
	for _, s := range of.Steps {
		if s.Mark || s.Op != plan.Add && s.Op != plan.Change && s.Op != plan.Adopt {
			continue
		}
		if by := p.key(s).By; by.ID != "" {
			out = append(out, record.Gave{Owner: by, Key: record.KeyOf(s.Kind, s.Key)})
		}
	}
	return out
}

// GaveBefore returns the objects that could have given a key that the node has.
func (d *Decision) GaveBefore(s plan.Step) []record.Owner { return d.keys[name(s)].Owners }

// Sooner returns the shorter of two durations; 0 means none.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 {
		return b
	}
	if b <= 0 {
		return a
	}
	return min(a, b)
}
