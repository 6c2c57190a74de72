package decide

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/rules/plan"
)

// Event is an Event about the node.
type Event struct {
	Type, Reason, Message string
	// Held is set if it reports keys that are left as they are.
	Held *Held `json:",omitzero"`
}

// Held says which keys are left as they are, until when, and why.
type Held struct {
	Until time.Time
	Why   string
	Keys  []string
}

// HeldEvent returns the Event that keys are left as they are; see hold for the reasons.
func HeldEvent(reason, why string, until time.Time, list []string) Event {
	return Event{
		Type: corev1.EventTypeWarning, Reason: reason, Message: hold.Message(reason, until, why, list), Held: &Held{Until: until, Why: why, Keys: list},
	}
}

func (p *Pass) warn(reason, format string, args ...any) {
	p.say = append(p.say, Event{Type: corev1.EventTypeWarning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// heldStep is a step of a plan that has to wait.
type heldStep struct {
	plan.Step
	until time.Time
}

// The reasons why steps wait, for people.
var (
	whyFlapping  = fmt.Sprintf("it changed %d times within %s, and stays until it has been stable for as long", flap.Limit, flap.Window)
	whyUnseen    = "removalGracePeriod: this controller has just begun to read ResourceSlices, and a driver may be away for a while"
	whyContested = fmt.Sprintf("another client has changed it back %d times or more within %s", flap.CorrectionLimit, flap.CorrectionWindow)
)

// sameTime is the difference of two times that are computed from the same one in different passes.
const sameTime = time.Second

// sayHeld reports which steps wait, once for each step and time. An Event names all steps that wait for the same time.
func (p *Pass) sayHeld(reason, why string, list []heldStep, describe func(plan.Step) string) {
	byTime := map[time.Time][]string{}
	var times []time.Time
	for _, s := range list {
		if !p.unreported(reason+" "+name(s.Step), s.until) {
			continue
		}
		at := s.until.Truncate(sameTime)
		if byTime[at] == nil {
			times = append(times, at)
		}
		byTime[at] = append(byTime[at], describe(s.Step))
	}
	for _, at := range times {
		p.say = append(p.say, HeldEvent(reason, why, at, byTime[at]))
	}
}

// unreported reports whether a hold is new: no Event has reported it with this time. It remembers that one does now.
func (p *Pass) unreported(what string, until time.Time) bool {
	next := maps.Clone(p.Memory.Reported)
	maps.DeleteFunc(next, func(_ string, at time.Time) bool { return at.Before(p.Now) })
	before, ok := next[what]
	fresh := !ok || until.Sub(before).Abs() > sameTime
	if fresh {
		if next == nil {
			next = map[string]time.Time{}
		}
		next[what] = until
	}
	p.Memory.Reported = next
	return fresh
}

// sayGrace reports that the features of a worker's deleted object count for a while. Of a node whose worker this process has never seen it
// does so only if the node keeps something: the node may be without a worker on purpose.
func (p *Pass) sayGrace(keeps bool) {
	f := &p.Features
	if f.Held <= 0 || f.Unknown && !keeps {
		return
	}
	until := p.Now.Add(f.Held)
	if !p.unreported(hold.Removal, until) {
		return
	}
	why := "removalGracePeriod: the node's worker has published no NodeFeature since this controller started"
	if f.Worker != nil {
		why = fmt.Sprintf("removalGracePeriod: NodeFeature %s of the node's worker was deleted; its features count until then", f.Worker.Publisher)
	}
	p.say = append(p.say, HeldEvent(hold.Removal, why, until, nil))
}

// sayDevices reports that devices count which ResourceSlices do not describe now: no other program knows them.
func (p *Pass) sayDevices() {
	f := &p.Features
	if f.DevicesHeld <= 0 {
		return
	}
	until := p.Now.Add(f.DevicesHeld)
	if !p.unreported(hold.Devices, until) {
		return
	}
	why := "removalGracePeriod: the ResourceSlices of the DRA driver " + strings.Join(f.DevicesIncomplete, ", ") +
		" are incomplete or gone; the last devices of their pools count until then"
	p.say = append(p.say, HeldEvent(hold.Devices, why, until, nil))
}

// overInterval is the minimum time between two Events about the same pools that are left out.
const overInterval = time.Hour

// sayDevicesOver reports pools of devices that rules do not read.
func (p *Pass) sayDevicesOver() {
	over := p.Features.DevicesOver
	what := hold.DevicesOver + " " + over
	if over == "" || p.Memory.Reported[what].After(p.Now) {
		return
	}
	p.unreported(what, p.Now.Add(overInterval))
	p.warn(hold.DevicesOver, "%s", over)
}

// masterInterval is the minimum time between two Events about another master of a node.
const masterInterval = time.Hour

// sayMaster reports another program that keeps the same record as this controller, and removes what rules give here.
func (p *Pass) sayMaster(manager string) {
	p.unreported(hold.AnotherMaster, p.Now.Add(masterInterval))
	p.warn(hold.AnotherMaster, "%s removes what rules give, together with its entry in the annotation %s: it labels nodes, too, with another result. "+
		"Stop one of the two (nfd.enabled=false in the chart of an operator), or give one of them an instance name",
		cmp.Or(manager, "another client"), p.Settings.Policy.Record.Labels())
}

// describe returns a key that a step removes, and which objects gave it.
func (p *Pass) describe(s plan.Step) string {
	by := "an unknown rule"
	if p.lost(s) {
		by = "onLoss"
	} else if givers := p.key(s).Givers; len(givers) > 0 {
		by = Names(givers)
	}
	return fmt.Sprintf("%s (given by %s)", name(s), by)
}

// Names returns the names of objects of which one has given a key.
func Names(givers []record.Giver) string {
	var names []string
	for _, g := range givers {
		names = append(names, g.Name)
	}
	return strings.Join(names, " or ")
}

// Complaints calls f with each step of the wanted plan that is not written for a reason that its author should know.
func (m *Memory) Complaints(s *Settings, wanted *plan.Plan, now time.Time, f func(step plan.Step, why string)) {
	for _, step := range wanted.Left {
		f(step, "another client wrote it, and overwriting is not allowed")
	}
	for _, step := range wanted.Steps {
		if m.refuses(step, now) > 0 {
			f(step, "the API server refuses it")
		}
		if m.Waits != "" && s.Evicts(step) {
			f(step, "it evicts pods, and has to wait: "+m.Waits)
		}
		if m.Corrections.Held(name(step), step.New).After(now) {
			f(step, "another client keeps changing it, and it is corrected less and less often")
		}
	}
}
