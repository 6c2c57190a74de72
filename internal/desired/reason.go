package desired

import (
	"slices"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Reason is what is known about a key that a plan changes: which objects gave it, which one gives it now, and why it changes.
type Reason struct {
	// Owners are the objects that could have given the key that the plan takes from the node; empty: unknown.
	Owners []record.Owner `json:",omitzero"`
	// By gives the key now; without an ID: nothing does.
	By record.Owner `json:",omitzero"`
	// Cause is why the key is removed, or gets another value.
	Cause record.Cause `json:",omitzero"`
	// Overruled is set if an object that is new or has changed since the last pass sets or deletes the key.
	Overruled bool `json:",omitzero"`
	// Given is set if the key followed from what this process saw in the last pass, which is not the case for one that it holds. GivenOld
	// is Given with the value that the node has, and GivenNew with the value that the plan writes.
	Given, GivenOld, GivenNew bool `json:",omitzero"`
	// Elsewhere is set if an active object other than the Owners names the key.
	Elsewhere bool `json:",omitzero"`
	// Devices is set if a rule of the Owners, or of an object that now sets or deletes the key, makes the key depend on devices of DRA drivers.
	Devices bool `json:",omitzero"`
	// Health is set if a rule gives the taint or condition that may depend on the health of the node. HealthFeatures are those it reads.
	Health         bool     `json:",omitzero"`
	HealthFeatures []string `json:",omitzero"`
	// Undecided is set if the value that the key should have is unknown, because the worker has not read a source since the node booted, or
	// because of the definition of a kind.
	Undecided bool `json:",omitzero"`
	// Baseline is set if the key is the condition of a NodeBaseline.
	Baseline bool `json:",omitzero"`
}

// Memory is what a process remembers of its last pass over a node. Other programs, which have none, use the record.
type Memory struct {
	// Given are the keys that the rules gave in the last pass that was carried out; nil: there was none.
	Given *record.Given `json:"-"`
	// Held lists the objects that could have given keys that the Node has and the rules do not give, by the name of the step.
	Held map[string]HeldKey `json:"-"`
}

// HeldKey is a key that a Node has although the rules do not give it.
type HeldKey struct {
	Key    record.Key
	Owners []record.Owner
}

// Objects returns the names of the objects with rules that could have given the key, or give it now, sorted.
func (k *Reason) Objects() []string {
	var out []string
	for _, g := range append(slices.Clone(k.Owners), k.By) {
		if g.Name != "" && g.ID != record.Requested {
			out = append(out, g.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Active holds the objects of one program. It is immutable.
type Active struct {
	Generation int64
	// Owners are the objects by ID, Edition the same, and Sets their rules. The object of requested labels has none.
	Owners  map[string]record.Owner
	Edition *record.Edition
	Sets    map[string]*rules.RuleSet
}

// NewActive returns the objects of a program under the given settings, see record.Objects.
func NewActive(generation int64, program *rules.Program, settings string) *Active {
	out := &Active{Generation: generation, Owners: record.Objects(program, settings), Sets: map[string]*rules.RuleSet{}}
	out.Edition = record.NewEdition(out.Owners)
	for _, s := range program.Sets() {
		out.Sets[s.ID()] = s
	}
	return out
}

// Since returns the objects for a process that does not know the settings on which fingerprints depend. Objects that are the same in before have
// the fingerprint of the record, and others have a new one.
func (a *Active) Since(before *Active, past *record.Record) *Active {
	out := &Active{Generation: a.Generation, Owners: make(map[string]record.Owner, len(a.Owners)), Sets: a.Sets}
	for id, g := range a.Owners {
		if before.Owners[id] == g {
			g.Print = past.Rolled(id)
		} else {
			g.Print = "changed"
		}
		out.Owners[id] = g
	}
	return out
}

// Origins answers which objects gave the keys of one node, and which give them now.
type Origins struct {
	Outcome *rules.Outcome
	// Worker are the features that the node's own worker has published; nil: there are none.
	Worker *facts.Facts
	Active *Active
	// Past is the record at the start of this process; nil: it cannot be read, and any object may have given a key.
	Past *record.Record
	// Inactive returns the state of an object that is not active.
	Inactive func(record.Owner) record.State
	// Memory is that of the last pass.
	Memory *Memory
	// Unknown is set if it is unknown what the node's worker has published.
	Unknown bool
	// Suspended is set if the rules of an object are unknown because of a definition, and with them what others read of its outputs.
	Suspended bool
}

// Reason returns what is known about a key that a plan changes. All is set if it also matters which objects gave a key that the plan does not
// take from the node.
func (o *Origins) Reason(s plan.Step, all bool) Reason {
	k := Reason{GivenOld: o.Memory.Given.Has(s.Kind, s.Key, s.Old), GivenNew: o.Memory.Given.Has(s.Kind, s.Key, s.New)}
	_, k.Given = o.Memory.Given.Owner(s.Kind, s.Key)
	if set, ok := o.Outcome.Owner(s.Kind, s.Key); ok {
		k.By = o.Active.Owners[record.IDOf(set)]
		if s.Kind == keys.Condition && set != nil {
			_, k.Baseline = baseline.Of(set.Name)
		}
	}
	if s.Takes() || all || k.Baseline {
		k.Owners, k.Overruled = o.owners(s), o.overruled(s)
		k.Cause = o.why(s, k)
	}
	k.Undecided = !s.Mark && s.Op != plan.Forget && (o.undecided(s, k.Owners) || o.waits(s, k))
	if s.Op == plan.Remove && s.Takes() {
		k.Elsewhere = o.namedElsewhere(s, k.Owners)
	}
	k.Devices = s.Takes() && o.readsDevices(s, k)
	if s.Hits() && k.By.ID != "" {
		k.HealthFeatures, k.Health = o.Outcome.Program().ReadsHealth(s.Kind, s.Key, func(set *rules.RuleSet) bool { return set.ID() == k.By.ID })
	}
	return k
}

// Removal returns the cause for which a key is removed from the Node that no rule gives.
func (o *Origins) Removal(kind keys.Kind, key string) record.Cause {
	s := plan.Step{Kind: kind, Key: key, Op: plan.Remove}
	return o.why(s, Reason{Owners: o.owners(s), Overruled: o.overruled(s)})
}

// owners returns the objects that could have given a key that the Node has.
func (o *Origins) owners(s plan.Step) []record.Owner {
	if held, ok := o.Memory.Held[hold.Key(s.Kind, s.Key)]; ok {
		return held.Owners
	}
	if by, ok := o.Memory.Given.Owner(s.Kind, s.Key); ok {
		return []record.Owner{by}
	}
	return o.Past.Owners(record.KeyOf(s.Kind, s.Key))
}

// why returns the cause of a step that removes a key.
func (o *Origins) why(s plan.Step, k Reason) record.Cause {
	c := record.Case{Past: k.Owners, Overruled: k.Overruled, Unknown: o.Unknown}
	for _, g := range c.Past {
		now, ok := o.Active.Owners[g.ID]
		if !ok {
			c.Now = append(c.Now, record.Object{State: o.Inactive(g)})
			continue
		}
		set := o.Active.Sets[g.ID]
		c.Now = append(c.Now, record.Object{
			State: record.Active, Print: now.Print, Gives: k.By.ID == g.ID, MayGive: set == nil || set.MayGive(s.Kind, s.Key),
		})
	}
	return record.Why(c)
}

// namedElsewhere reports whether an active object other than those that gave a key names it.
func (o *Origins) namedElsewhere(s plan.Step, owners []record.Owner) bool {
	for id, set := range o.Active.Sets {
		if !slices.ContainsFunc(owners, func(g record.Owner) bool { return g.ID == id }) && set.Names(s.Kind, s.Key) {
			return true
		}
	}
	return false
}

// undecided reports whether it is unknown which value a key should have: a rule that may give it, or the worker's own label, depends on a
// source that has not been read.
func (o *Origins) undecided(s plan.Step, owners []record.Owner) bool {
	gave := func(id string) bool {
		return o.Past == nil && s.Op == plan.Remove || slices.ContainsFunc(owners, func(g record.Owner) bool { return g.ID == id })
	}
	if o.Outcome.Undecided(s.Kind, s.Key, func(set *rules.RuleSet) bool { return gave(set.ID()) }) {
		return true
	}
	_, label := keys.Split(s.Key)
	return s.Takes() && s.Kind == keys.Label && gave(record.Requested) && o.Worker.MayHaveLabel(label)
}

// waits reports whether it is unknown which value a key should have because of the definition of a kind: of an object that may have given
// it, or of one whose outputs such an object reads.
func (o *Origins) waits(s plan.Step, k Reason) bool {
	unknown := func(g record.Owner) bool {
		if _, active := o.Active.Owners[g.ID]; !active {
			return o.Inactive(g) == record.Waiting
		}
		set := o.Active.Sets[g.ID]
		return o.Suspended && set != nil && set.ReadsOthers()
	}
	return s.Takes() && slices.ContainsFunc(k.Owners, unknown) || k.By.ID != "" && unknown(k.By)
}

// readsDevices reports whether a key may depend on devices of DRA drivers: by a rule of an object that gave it, or that sets or deletes it now.
func (o *Origins) readsDevices(s plan.Step, k Reason) bool {
	deleters := o.Outcome.Deleters(s.Kind, s.Key)
	return o.Outcome.Program().ReadsDevices(s.Kind, s.Key, func(set *rules.RuleSet) bool {
		id := set.ID()
		return id == k.By.ID || slices.ContainsFunc(k.Owners, func(g record.Owner) bool { return g.ID == id }) || slices.Contains(deleters, set)
	})
}

// overruled reports whether an object that is new or has changed since the last pass sets or deletes a key.
func (o *Origins) overruled(s plan.Step) bool {
	if set, ok := o.Outcome.Owner(s.Kind, s.Key); ok {
		return set != nil && o.changed(set.ID())
	}
	return slices.ContainsFunc(o.Outcome.Deleters(s.Kind, s.Key), func(set *rules.RuleSet) bool { return o.changed(set.ID()) })
}

// changed reports whether an active object has changed since the last pass over the node.
func (o *Origins) changed(id string) bool {
	now := o.Active.Owners[id]
	if o.Memory.Given != nil {
		before, ok := o.Memory.Given.Edition.Owner(id)
		return !ok || before.Print != now.Print
	}
	if o.Past == nil {
		return false
	}
	before := o.Past.Objects[id]
	if before == nil {
		return o.Past.Whole
	}
	return before.Rolled != now.Print
}
