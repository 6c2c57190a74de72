package decide

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/plan"
)

// Event is an Event about the node. What waits is published as holds instead, see Decision.Holds.
type Event struct {
	Type, Reason, Message string
	// Keys are those that the Event is about, all of them.
	Keys []string `json:",omitzero"`
}

func (p *Pass) warn(reason, format string, args ...any) {
	p.events = append(p.events, Event{Type: corev1.EventTypeWarning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// The reasons why steps wait, for people.
var (
	whyFlapping   = fmt.Sprintf("it changed %d times within %s, and stays for as long after the last change", flap.Limit, flap.Window)
	whyUnseen     = "removalGracePeriod: this controller has just begun to read ResourceSlices, and a driver may be away for a while"
	whyContested  = fmt.Sprintf("another client has changed it back %d times or more within %s", flap.CorrectionLimit, flap.CorrectionWindow)
	whyUndefined  = "NodeFeatures have no definition; all were deleted with it"
	whyReturning  = "the definition of NodeFeatures is another one; their publishers have removalGracePeriod to publish again"
	whyIncomplete = "the cache of the controller lacks NodeFeatures of the node; it lists them again"
	whyNotWhole   = "the definition of a kind of rules is not whole"
)

// whyRefused returns why a step waits that the API server rejected.
func whyRefused(message string) string { return "the API server rejects it: " + message }

// hold publishes that a step waits. Steps that wait for one reason and time are one hold.
func (p *Pass) hold(reason, why string, until time.Time, s plan.Step) {
	h := hold.Hold{Reason: reason, Until: until, Why: why, Keys: []string{name(s)}}
	for i := range p.holds {
		same := h
		same.Keys = p.holds[i].Keys
		if len(same.Keys) > 0 && same.Same(p.holds[i]) {
			p.holds[i].Keys = append(p.holds[i].Keys, h.Keys...)
			return
		}
	}
	p.holds = append(p.holds, h)
}

// holdWhole publishes that features count which no object describes now. It names no keys: which ones follow from them is not known here.
func (p *Pass) holdWhole(reason, why string, until time.Time) {
	p.holds = append(p.holds, hold.Hold{Reason: reason, Until: until, Why: why})
}

// holdDevices publishes that devices count which ResourceSlices do not describe now: no other program knows them.
func (p *Pass) holdDevices() {
	if f := &p.Features; f.DevicesHeld > 0 {
		p.holdWhole(hold.Devices, "removalGracePeriod: the ResourceSlices of the DRA driver "+strings.Join(f.DevicesIncomplete, ", ")+
			" are incomplete or gone; the last devices of their pools count until then", p.Now.Add(f.DevicesHeld))
	}
}

// whyUnread returns why the value of a key is unknown.
func (p *Pass) whyUnread() string {
	if w := p.Features.Worker; w != nil && len(w.Unread) > 0 {
		return facts.WhyUnread(w.Unread)
	}
	return whyNotWhole
}

// overInterval is the minimum time between two Events about the same pools that are left out.
const overInterval = time.Hour

// reportDevicesOver reports pools of devices that rules do not read.
func (p *Pass) reportDevicesOver() {
	over := p.Features.DevicesOver
	if over == "" || p.Memory.DevicesOver == over && p.Now.Sub(p.Memory.DevicesOverAt) < overInterval {
		return
	}
	p.Memory.DevicesOver, p.Memory.DevicesOverAt = over, p.Now
	p.warn(hold.DevicesOver, "%s", over)
}

// masterInterval is the minimum time between two Events about another master of a node.
const masterInterval = time.Hour

// reportMaster reports another program that keeps the same record as this controller, and removes what rules give here.
func (p *Pass) reportMaster(manager string) {
	p.Memory.Mastered = p.Now
	p.warn(hold.AnotherMaster, "%s removes what rules give, together with its entry in the annotation %s: it labels nodes, too, with another result. "+
		"Stop one of the two (nfd.enabled=false in the chart of an operator), or give one of them an instance name",
		cmp.Or(manager, "another client"), p.Settings.Policy.Record.Labels())
}

// describe returns a key that a step removes, and which objects gave it.
func (p *Pass) describe(s plan.Step) string {
	by := "an unknown rule"
	if p.lost(s) {
		by = "onLoss"
	} else if owners := p.key(s).Owners; len(owners) > 0 {
		by = Names(owners)
	}
	return fmt.Sprintf("%s (given by %s)", name(s), by)
}

// Names returns the names of objects of which one has given a key.
func Names(owners []record.Owner) string {
	var names []string
	for _, g := range owners {
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
