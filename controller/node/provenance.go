package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// inForce holds the objects of one program.
type inForce struct {
	generation int64
	givers     map[string]provenance.Giver
	edition    *provenance.Edition // the same givers
	sets       map[string]*rules.RuleSet
}

// inForce returns the objects of a program. They are computed once per program.
func (r *Reconciler) inForce(linked *assembly.Linked) *inForce {
	r.forceMu.Lock()
	defer r.forceMu.Unlock()
	if r.force == nil || r.force.generation != linked.Generation {
		next := &inForce{generation: linked.Generation, givers: provenance.Objects(linked.Program, r.settings), sets: map[string]*rules.RuleSet{}}
		next.edition = provenance.NewEdition(next.givers)
		for _, s := range linked.Program.Sets() {
			next.sets[s.ID()] = s
		}
		r.force = next
	}
	return r.force
}

// fleet returns the functions through which the book reads the cluster.
func (r *Reconciler) fleet() provenance.Fleet {
	return provenance.Fleet{
		Nodes: r.countNodes,
		Objects: func() (int64, map[string]provenance.Giver) {
			linked := r.registry.Program()
			return linked.Generation, r.inForce(linked).givers
		},
		State: r.state,
	}
}

// state returns the state of an object that is not active.
func (r *Reconciler) state(g provenance.Giver) provenance.State {
	o := r.object(g.Name)
	switch {
	case o == nil || string(o.UID) != g.ID:
		return provenance.Gone // the API server has confirmed it, when the object was removed or in begin
	case o.Set != nil || !o.Settled():
		return provenance.Unsettled // it has a set and is about to be linked
	}
	return provenance.Off
}

// begin starts the pace of evictions and reads the record of provenance before the first pass. An object that has given keys and is
// not active could be missing only in the cache, so begin reads it from the API server.
func (r *Reconciler) begin(ctx context.Context) error {
	r.beginning.Lock()
	defer r.beginning.Unlock()
	r.leads.Do(r.gate.Lead)
	absent, err := r.book.Load(ctx)
	if err != nil {
		return err
	}
	for _, g := range absent {
		if r.object(g.Name) != nil || strings.Contains(g.Name, ":") {
			continue // known under another UID, or not an object in the API server
		}
		if err := r.confirm(ctx, g.Name); err != nil {
			r.book.Unload()
			return fmt.Errorf("confirm that NodeFeatureRule %s has been deleted: %w", g.Name, err)
		}
	}
	return nil
}

// judge determines the causes of the removals of one pass.
type judge struct {
	r       *Reconciler
	node    *corev1.Node
	state   inputs.State // of the node
	known   *memo
	now     *inForce
	outcome *rules.Outcome
	past    *provenance.Record
	blind   bool // the facts of the node's worker are missing
	// incomplete is set if the cache lacks NodeFeatures of the node.
	incomplete bool
}

// why returns the cause of a step that removes a key.
func (j *judge) why(s plan.Step) provenance.Cause {
	if s.Kind == keys.Taint && j.r.taint != nil && s.Key == plan.TaintKey(*j.r.taint) {
		return provenance.Rules // no rule produces the failure mark: it is removed with the failure
	}
	if j.lost(s) {
		return provenance.Rules // nor this one: it is removed when the features are back
	}
	c := provenance.Case{Past: j.givers(s), Overruled: j.overruled(s), Blind: j.blind}
	gives := j.giver(s)
	for _, g := range c.Past {
		now, ok := j.now.givers[g.ID]
		if !ok {
			c.Now = append(c.Now, provenance.Object{State: j.r.state(g)})
			continue
		}
		set := j.now.sets[g.ID]
		c.Now = append(c.Now, provenance.Object{
			State: provenance.InForce, Print: now.Print, Gives: gives == g.ID,
			MayGive: set == nil || set.MayGive(s.Kind, s.Key),
		})
	}
	return provenance.Why(c)
}

// explained reports whether a change of the rules is the cause of a step, be it an addition or a removal.
func (j *judge) explained(s plan.Step) bool {
	if s.Takes() {
		return j.why(s) == provenance.Rules
	}
	return j.overruled(s)
}

// givers returns the objects that could have given a key that the Node has.
func (j *judge) givers(s plan.Step) []provenance.Giver {
	if held, ok := j.known.held[name(s)]; ok {
		return held.givers
	}
	if by, ok := j.known.given.Giver(s.Kind, s.Key); ok {
		return []provenance.Giver{by}
	}
	return j.past.Givers(keyOf(s))
}

// giver returns the ID of the object that gives a key now; empty if none does.
func (j *judge) giver(s plan.Step) string {
	if set, ok := j.outcome.Giver(s.Kind, s.Key); ok {
		return provenance.IDOf(set)
	}
	return ""
}

// gave reports whether a key followed from what this process saw in the last pass. A key that it holds does not.
func (j *judge) gave(s plan.Step) bool {
	_, ok := j.known.given.Giver(s.Kind, s.Key)
	return ok
}

// gaveOld is gave for the value that the Node has.
func (j *judge) gaveOld(s plan.Step) bool { return j.known.given.Has(s.Kind, s.Key, s.Old) }

// namedElsewhere reports whether an active object other than those that gave a key names it.
func (j *judge) namedElsewhere(s plan.Step) bool {
	gave := j.givers(s)
	for id, set := range j.now.sets {
		if !slices.ContainsFunc(gave, func(g provenance.Giver) bool { return g.ID == id }) && set.Names(s.Kind, s.Key) {
			return true
		}
	}
	return false
}

// overruled reports whether an object that is new or has changed since the last pass sets or deletes a key.
func (j *judge) overruled(s plan.Step) bool {
	if set, ok := j.outcome.Giver(s.Kind, s.Key); ok {
		return set != nil && j.changed(set.ID())
	}
	return slices.ContainsFunc(j.outcome.Deleters(s.Kind, s.Key), func(set *rules.RuleSet) bool { return j.changed(set.ID()) })
}

// changed reports whether an active object has changed since the last pass over the node.
func (j *judge) changed(id string) bool {
	now := j.now.givers[id]
	if j.known.given != nil {
		before, ok := j.known.given.Edition.Giver(id)
		return !ok || before.Print != now.Print
	}
	before := j.past.Objects[id]
	if before == nil {
		return j.past.Whole
	}
	return before.Rolled != now.Print
}

// cover returns the keys that a plan adds to the node.
func (j *judge) cover(p *plan.Plan) []provenance.Gave {
	out := make([]provenance.Gave, 0, len(p.Steps))
	for _, s := range p.Steps {
		if s.Mark || s.Op != plan.Add && s.Op != plan.Change && s.Op != plan.Adopt {
			continue
		}
		if id := j.giver(s); id != "" {
			out = append(out, provenance.Gave{Giver: j.now.givers[id], Key: keyOf(s)})
		}
	}
	return out
}

// carry records which objects gave the keys that the Node has after a pass: p is the part of the desired plan that was carried out,
// or attempted.
func (j *judge) carry(wish, p *plan.Plan, err error) {
	if j.outcome.Failed != nil && err == nil {
		return // the node keeps its keys
	}
	held := map[string]heldKey{}
	for _, s := range wish.Steps {
		done := p.Has(s)
		switch {
		case s.Takes() && (!done || err != nil):
			held[name(s)] = heldKey{keyOf(s), j.givers(s)}
		case done && err != nil && !s.Mark && s.Op != plan.Forget: // it could have been written
			if id := j.giver(s); id != "" {
				held[name(s)] = heldKey{keyOf(s), []provenance.Giver{j.now.givers[id]}}
			}
		}
	}
	j.known.held = held
	if err == nil {
		j.known.given = provenance.GivenBy(j.outcome, j.now.edition)
	}
	if err == nil && len(held) == 0 {
		j.known.remember(j.state.Input.Publishers)
	}
}

// remember records the NodeFeatures that count.
func (m *memo) remember(publishers []rules.Publisher) {
	if slices.EqualFunc(m.publishers, publishers, func(name string, p rules.Publisher) bool { return name == p.Name }) {
		return
	}
	m.publishers = make([]string, len(publishers))
	for i, p := range publishers {
		m.publishers[i] = p.Name
	}
}

// pass returns the data of the pass that the book records.
func (j *judge) pass() provenance.Pass {
	out := provenance.Pass{Generation: j.now.generation, Given: j.known.given}
	for _, held := range j.known.held {
		for _, g := range held.givers {
			out.Held = append(out.Held, provenance.Gave{Giver: g, Key: held.key})
		}
	}
	return out
}

func keyOf(s plan.Step) provenance.Key { return provenance.KeyOf(s.Kind, s.Key) }

// describe returns a key that a step removes, and which objects gave it.
func (j *judge) describe(s plan.Step) string {
	by := "an unknown rule"
	if j.lost(s) {
		by = "onLoss"
	} else if givers := j.givers(s); len(givers) > 0 {
		by = givenNames(givers)
	}
	return fmt.Sprintf("%s (given by %s)", name(s), by)
}

func givenNames(givers []provenance.Giver) string {
	var names []string
	for _, g := range givers {
		names = append(names, g.Name)
	}
	return strings.Join(names, " or ")
}

// causes returns why a plan removes or changes keys, by the name of the step.
func (j *judge) causes(p *plan.Plan) map[string]provenance.Cause {
	out := map[string]provenance.Cause{}
	for _, s := range p.Steps {
		if s.Takes() && !j.r.switchedOff(s) {
			out[name(s)] = j.why(s)
		}
	}
	return out
}

// logRemovals logs the keys that a plan removes or changes, and why.
func (j *judge) logRemovals(ctx context.Context, p *plan.Plan, causes map[string]provenance.Cause) {
	byCause := map[provenance.Cause][]plan.Step{}
	for _, s := range p.Steps {
		if cause, ok := causes[name(s)]; ok {
			byCause[cause] = append(byCause[cause], s)
		}
	}
	for _, cause := range []provenance.Cause{provenance.Rules, provenance.Facts, provenance.Unknown} {
		if steps := byCause[cause]; len(steps) > 0 {
			var list []string
			for _, s := range steps {
				list = append(list, j.describe(s))
			}
			logf.FromContext(ctx).Info("Removing or changing keys", "node", j.node.Name, "cause", cause.String(), "keys", hold.Some(list))
		}
	}
}
