package decide

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// ErrConflict is how a pass ends if another client has changed the Node in the meantime.
var ErrConflict = errors.New("the node has changed; retrying")

// Memory is what is remembered of a node from one pass to the next. All of it can be lost at any time: a restart causes evaluations, but
// no writes. Decide does not modify maps of the Memory that it gets.
type Memory struct {
	// Written is the resourceVersion of the last write, or of the Node as it was read after a write whose answer was lost; empty: this
	// process has not written to the node.
	Written string `json:",omitzero"`
	// Notified is when schedulers were last notified of changed features.
	Notified time.Time `json:",omitzero"`
	// Refusals are the values that the API server rejected, by the name of the step.
	Refusals map[string]Refusal `json:",omitzero"`

	desired.Memory
	// Publishers are the NodeFeatures that counted in the last pass that held no removal, to name one that was deleted.
	Publishers []string `json:"-"`

	// Waits is why a taint that evicts pods has to wait; empty: none has to.
	Waits string `json:",omitzero"`
	// Left are the desired outputs that the last pass did not write; nil: none.
	Left map[string]bool `json:",omitzero"`
	// Unsure is set if the last pass failed, so that the state of the Node is unknown.
	Unsure bool `json:",omitzero"`
	// Fixing are the values of the keys that this pass corrects, Corrections those of the last hour, which another client had changed.
	Fixing      map[string]string `json:",omitzero"`
	Corrections flap.Corrections  `json:",omitzero"`
	// Turn is when contested keys of the node are written again; the zero time: none are due.
	Turn time.Time `json:",omitzero"`

	// Flapping are the keys that are left as they are because they change too often, by the name of the step.
	Flapping map[string]Flapping `json:",omitzero"`

	// Kept is what the node keeps while its worker's features are unknown; nil: that is not known yet.
	Kept map[string]bool
	// Mastered is when an Event last reported another master of the node.
	Mastered time.Time `json:",omitzero"`
	// DevicesOver are the pools that an Event last reported as left out, and DevicesOverAt is when.
	DevicesOver   string    `json:",omitzero"`
	DevicesOverAt time.Time `json:",omitzero"`
}

// Flapping says until when a key is left as it is because it changes too often. The key stays listed if the rules give its old value again
// in the meantime: the next change waits, too.
type Flapping struct {
	Until time.Time
	// Objects are the names of the objects with rules that gave the key or give it now, sorted; none: a NodeFeature requests it, or that is
	// unknown.
	Objects []string `json:",omitzero"`
}

// FlappingOf returns the keys that are left as they are because they change too often, sorted, by the object with rules that
// gives them, or "" if there is none.
func (m *Memory) FlappingOf() map[string][]string {
	if len(m.Flapping) == 0 {
		return nil
	}
	out := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(m.Flapping)) {
		objects := m.Flapping[key].Objects
		if len(objects) == 0 {
			objects = []string{""}
		}
		for _, object := range objects {
			out[object] = append(out[object], key)
		}
	}
	return out
}

// Refusal is a value that the API server rejected.
type Refusal struct {
	Value string
	At    time.Time
	Why   string `json:",omitzero"`
}

// RefusalMemory is how long a rejected value is not retried: it could be accepted after an upgrade, and retrying more often only
// fills the log of the API server.
const RefusalMemory = 10 * time.Minute

// Refuse remembers that the API server rejected the value of a step, and publishes it with the decision.
func (d *Decision) Refuse(m *Memory, s plan.Step, now time.Time, why string) {
	p := Pass{holds: d.Holds}
	m.Refuse(s, now, why)
	p.hold(hold.Refused, whyRefused(why), now.Add(RefusalMemory), s)
	d.Holds = p.holds
}

// Refuse remembers that the API server rejected the value of a step.
func (m *Memory) Refuse(s plan.Step, now time.Time, why string) {
	if m.Refusals == nil {
		m.Refusals = map[string]Refusal{}
	}
	m.Refusals[name(s)] = Refusal{s.New, now, why}
}

// refuses returns how long not to retry a step that was rejected recently; 0: it was not.
func (m *Memory) refuses(s plan.Step, now time.Time) time.Duration {
	last, ok := m.Refusals[name(s)]
	if !ok || last.Value != s.New {
		return 0
	}
	return max(0, RefusalMemory-now.Sub(last.At))
}

// Done is how a pass ended.
type Done struct {
	At  time.Time
	Err error // nil: the plan was written
	// Outcome is what the rules gave, and Edition has the objects of their program.
	Outcome *rules.Outcome
	Edition *record.Edition
	// Publishers are the NodeFeatures that counted.
	Publishers []rules.Publisher
}

// Finish remembers how the pass of a decision ended.
func (m *Memory) Finish(d *Decision, done Done) {
	m.recordContest(d, done)
	m.recordOwners(d, done)
}

// recordContest remembers what was corrected and what was left. A pass that ends with a conflict wrote nothing, so that what is known of the
// Node remains.
func (m *Memory) recordContest(d *Decision, done Done) {
	if errors.Is(done.Err, ErrConflict) {
		return
	}
	m.Unsure, m.Left = done.Err != nil, nil
	if done.Err != nil {
		return
	}
	if len(d.Allowed.Steps) < len(d.Wanted.Steps) || len(d.Wanted.Left) > 0 {
		m.Left = map[string]bool{}
		for _, s := range d.Wanted.Left {
			m.Left[name(s)] = true
		}
		for _, s := range d.Wanted.Steps {
			m.Left[name(s)] = true
		}
		for _, s := range d.Allowed.Steps {
			delete(m.Left, name(s))
		}
	}
	m.Corrections.Expire(done.At)
	if m.Corrections == nil && len(m.Fixing) > 0 {
		m.Corrections = flap.Corrections{}
	}
	for key, value := range m.Fixing {
		m.Corrections.Add(key, value, done.At)
	}
}

// recordOwners remembers which objects gave the keys that the Node has now.
func (m *Memory) recordOwners(d *Decision, done Done) {
	if d.frozen && done.Err == nil {
		return // the node keeps its keys
	}
	held := map[string]desired.HeldKey{}
	for _, s := range d.Wanted.Steps {
		written, k := d.Allowed.Has(s), d.keys[name(s)]
		switch {
		case s.Takes() && (!written || done.Err != nil):
			held[name(s)] = desired.HeldKey{Key: record.KeyOf(s.Kind, s.Key), Owners: k.Owners}
		case written && done.Err != nil && !s.Mark && s.Op != plan.Forget && k.By.ID != "": // it could have been written
			held[name(s)] = desired.HeldKey{Key: record.KeyOf(s.Kind, s.Key), Owners: []record.Owner{k.By}}
		}
	}
	m.Held = held
	if done.Err != nil {
		return
	}
	m.Given = record.GivenBy(done.Outcome, done.Edition)
	if len(held) == 0 {
		m.recordPublishers(done.Publishers)
	}
}

// recordPublishers remembers the NodeFeatures that count.
func (m *Memory) recordPublishers(list []rules.Publisher) {
	if slices.EqualFunc(m.Publishers, list, func(name string, p rules.Publisher) bool { return name == p.Name }) {
		return
	}
	m.Publishers = make([]string, len(list))
	for i, p := range list {
		m.Publishers[i] = p.Name
	}
}

// HeldKeys returns the keys that the Node has although the rules do not give them.
func (m *Memory) HeldKeys() (out []record.Gave) {
	for _, held := range m.Held {
		for _, g := range held.Owners {
			out = append(out, record.Gave{Owner: g, Key: held.Key})
		}
	}
	return out
}
