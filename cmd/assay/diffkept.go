package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// keptDiff compares what two programs mean for keys that the controller keeps on Nodes although no rule gives them now.
type keptDiff struct {
	world         *world
	before, after active
	records       map[string]*record.Record // by instance; nil: cannot be read
}

// active are the objects of a program and their fingerprints, by ID.
type active struct {
	sets   map[string]*rules.RuleSet
	prints map[string]string
}

func newKeptDiff(w *world, before, after *rules.Program) *keptDiff {
	of := func(p *rules.Program) active {
		a := active{map[string]*rules.RuleSet{}, p.Fingerprints("")}
		for _, set := range p.Sets() {
			a.sets[set.ID()] = set
		}
		return a
	}
	return &keptDiff{world: w, before: of(before), after: of(after), records: map[string]*record.Record{}}
}

// read reads the records of provenance of all instances that have written keys. Without its record nothing is known of what an
// instance keeps.
func (d *keptDiff) read(cmd *cobra.Command) {
	for _, node := range d.world.nodes {
		for _, k := range d.world.writtenOn(node) {
			if _, done := d.records[k.instance]; done {
				continue
			}
			r, _, err := d.world.provenance(cmd.Context(), k.instance)
			d.records[k.instance] = r
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: which rules gave the keys that nodes keep is unknown: %s\n", printable(err.Error()))
			}
		}
	}
}

// steps corrects the steps between two outcomes of a node by what the node has: a kept key that a rule gives again is there already, and
// a change of the rule that gave a kept key ends the reason to keep it.
func (d *keptDiff) steps(node *corev1.Node, before, after *rules.Outcome, taints bool, steps []plan.Step) []plan.Step {
	if node == nil || after.Failed != nil {
		return steps
	}
	was, now := flatDesired(desired(before, taints)), flatDesired(desired(after, taints))
	for _, k := range d.world.writtenOn(node) {
		id := flatKey{k.kind, k.key}
		has, there := written.Value(node, k.kind, k.key)
		if _, given := was[id]; given || !there {
			continue
		}
		value, given := now[id]
		if given {
			steps = slices.DeleteFunc(steps, func(s plan.Step) bool { return s.Kind == id.kind && s.Key == id.key })
			if value != has {
				steps = append(steps, plan.Step{Op: plan.Change, Kind: id.kind, Key: id.key, Old: has, New: value})
			}
		} else if d.cause(k, node.Name, d.before) != record.Rules && d.cause(k, node.Name, d.after) == record.Rules {
			steps = append(steps, plan.Step{Op: plan.Remove, Kind: id.kind, Key: id.key, Old: has})
		}
	}
	return steps
}

// cause returns why the controller would remove a key that no rule gives, if the rules were these.
func (d *keptDiff) cause(k writtenKey, node string, now active) record.Cause {
	r := d.records[k.instance]
	if r == nil {
		return record.Unknown
	}
	c := record.Case{Past: r.Givers(record.KeyOf(k.kind, k.key)), Unknown: len(d.world.fleet.Published(node)) == 0}
	for _, giver := range c.Past {
		set, ok := now.sets[giver.ID]
		switch {
		case !ok:
			c.Now = append(c.Now, record.Object{State: d.missing(giver)})
		case now.prints[giver.ID] == d.before.prints[giver.ID]:
			c.Now = append(c.Now, record.Object{State: record.Active, Print: giver.Print})
		default:
			c.Now = append(c.Now, record.Object{State: record.Active, Print: "changed", MayGive: set.MayGive(k.kind, k.key)})
		}
	}
	return record.Why(c)
}

// missing returns the state of an object of which no rules are evaluated.
func (d *keptDiff) missing(g record.Giver) record.State {
	if g.ID == record.Requested {
		return record.Unsettled // NodeFeatures, which are the same before and after
	}
	for i := range d.world.rules {
		if r := &d.world.rules[i]; string(r.UID) == g.ID && d.before.sets[g.ID] == nil {
			return record.Unsettled // it could not be resolved
		}
	}
	return record.Gone
}
