//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/stage"
)

// run is a sequence of rounds. In each, some faults begin, facts and rules change, the faults end, and the Nodes must converge.
type run struct {
	*world
	rand  *rand.Rand
	short bool

	faults int
	rounds int
	byKind map[string]int
	times  []convergence
}

// convergence is the time between the end of the faults of a round and the last change of a Node.
type convergence struct {
	round int
	took  time.Duration
	after []string // kinds and targets of the faults
}

const (
	// mostTogether is the default maximum number of faults in a round.
	mostTogether = 3
	// longestFault is the maximum duration of a fault, except for those of a Lease.
	longestFault = 4 * time.Second
	// changesPerRound is the number of nodes whose facts change in a round.
	changesPerRound = 3
	// editShare, createShare and deleteShare are the fractions of rounds in which rules are edited, created and deleted.
	editShare, createShare, deleteShare = 0.3, 0.2, 0.2
	// beforeShare is the fraction of rounds in which facts and rules change before the faults; in the others, at their end.
	beforeShare = 0.5
)

func newRun(w *world, short bool) *run {
	return &run{world: w, rand: rand.New(rand.NewPCG(w.seed, 1)), short: short, byKind: map[string]int{}} //nolint:gosec // not a secret
}

// inject runs rounds until there were enough faults. It ends at the first violation, which is the error.
func (w *world) inject(ctx context.Context, faults int, short bool) (*run, error) {
	r := newRun(w, short)
	for r.faults < faults {
		r.rounds++
		if err := r.round(ctx, min(1+r.rand.IntN(r.together), faults-r.faults)); err != nil {
			return r, fmt.Errorf("round %d of seed %d: %w", r.rounds, w.seed, err)
		}
	}
	return r, nil
}

func (r *run) round(ctx context.Context, count int) error {
	kinds, targets := r.draw(count)
	held := time.Duration(r.rand.Int64N(int64(longestFault)))
	before := r.rand.Float64() < beforeShare
	changes := func() func(context.Context) error { return r.change(ctx) }
	var changed func(context.Context) error
	if before {
		changed = changes()
	}
	var active []*fault
	begin := time.Now()
	var failed error
	for i, k := range kinds {
		f, err := k.strike(ctx, r.world, targets[i], r.rand)
		if f != nil {
			f.kind, f.target = k.name, targets[i]
			active = append(active, f)
		}
		if failed = err; err != nil {
			failed = fmt.Errorf("%s of %s: %w", k.name, targets[i], err)
			break
		}
	}
	if failed == nil {
		failed = stage.Sleep(ctx, held)
	}
	if !before {
		changed = changes()
	}
	healed := r.heal(ctx, active)
	end := time.Now()
	for _, f := range active {
		r.report(f, end.Sub(begin))
	}
	if err := errors.Join(failed, healed); err != nil {
		return err
	}
	return r.finish(ctx, active, changed, end)
}

// finish waits until the world is whole again, and checks that nothing was violated.
func (r *run) finish(ctx context.Context, active []*fault, changed func(context.Context) error, end time.Time) error {
	err := changed(ctx)
	if err == nil {
		err = r.converge(ctx)
	}
	took := time.Since(end)
	for _, f := range active {
		if f.after != nil && err == nil {
			err = named(f, f.after())
		}
	}
	if err == nil {
		err = r.settle(ctx)
	}
	if err == nil {
		err = r.seen(ctx)
	}
	violations, versions := r.checker.Violations()
	if len(violations) > 0 {
		err = errors.Join(violated(violations), err)
	}
	if exits := r.fleet.Exits(); exits > 0 {
		err = errors.Join(err, fmt.Errorf("%d workers have ended", exits))
	}
	if err != nil {
		return err
	}
	for _, n := range r.changing {
		r.changed[n.Name] = append(r.changed[n.Name], time.Now())
	}
	r.changing = nil
	var after []string
	for _, f := range active {
		after = append(after, f.kind+" "+f.target)
	}
	r.times = append(r.times, convergence{r.rounds, took, after})
	r.say("round %d: all Nodes as wanted %.1f s after the faults; %d faults, %d versions of Nodes, 0 violations", r.rounds, took.Seconds(), r.faults, versions)
	return nil
}

// violated returns an error with the first violations.
func violated(all []violation) error {
	const quoted = 3
	text := make([]string, 0, quoted)
	for _, v := range all[:min(quoted, len(all))] {
		text = append(text, v.String())
	}
	return fmt.Errorf("%d violations:\n%s", len(all), strings.Join(text, "\n"))
}

// report prints one fault and counts it.
func (r *run) report(f *fault, took time.Duration) {
	r.faults++
	r.byKind[f.kind]++
	effect := ""
	if f.effect != nil {
		effect = ": " + f.effect()
	}
	r.say("  %d. %s, %s: %s, for %.1f s%s", r.faults, f.target, f.kind, f.what, took.Seconds(), effect)
}

// heal ends the faults. Those that another one may delay come first.
func (r *run) heal(ctx context.Context, active []*fault) error {
	var errs []error
	for _, f := range slices.Backward(active) {
		if f.heal == nil {
			continue
		}
		if group(&kind{name: f.kind}, f.target) == controlPlane {
			errs = append(errs, named(f, f.heal(ctx)))
			f.heal = nil
		}
	}
	for _, f := range slices.Backward(active) {
		if f.heal != nil {
			errs = append(errs, named(f, f.heal(ctx)))
		}
	}
	return errors.Join(errs...)
}

func named(f *fault, err error) error {
	if err != nil {
		err = fmt.Errorf("end of %s of %s: %w", f.kind, f.target, err)
	}
	return err
}

// draw chooses kinds of faults with targets that exclude none of the others.
func (r *run) draw(count int) (drawn []*kind, targets []string) {
	taken := map[string]bool{}
	for len(drawn) < count {
		k := r.drawKind()
		target := k.targets[r.rand.IntN(len(k.targets))]
		g := group(k, target)
		if taken[g] || taken[target] {
			continue
		}
		taken[g], taken[target] = true, true
		drawn, targets = append(drawn, k), append(targets, target)
	}
	return drawn, targets
}

func (r *run) drawKind() *kind {
	total := 0
	for i := range kinds {
		if !r.short || !kinds[i].slow {
			total += kinds[i].weight
		}
	}
	at := r.rand.IntN(total)
	for i := range kinds {
		if r.short && kinds[i].slow {
			continue
		}
		if at -= kinds[i].weight; at < 0 {
			return &kinds[i]
		}
	}
	panic("unreachable: the weights do not sum up")
}

// change changes facts and, in some rounds, rules. The returned function waits until the rules are changed.
func (r *run) change(ctx context.Context) func(context.Context) error {
	some := pick(r.rand, r.calm(1), changesPerRound)
	r.changing = append(r.changing, some...)
	r.touch(some)
	var steps []func(context.Context) error
	if r.rand.Float64() < editShare {
		steps = append(steps, r.edit)
	}
	if r.rand.Float64() < createShare {
		steps = append(steps, r.create)
	}
	if r.rand.Float64() < deleteShare {
		steps = append(steps, r.remove)
	}
	return r.inBackground(ctx, func(ctx context.Context) error {
		for len(steps) > 0 {
			if err := steps[0](ctx); err != nil {
				return err
			}
			steps = steps[1:]
		}
		return nil
	})
}

// edit changes the value of a label on all nodes.
func (r *run) edit(ctx context.Context) error {
	r.model.mu.Lock()
	next := r.model.edit + 1
	r.model.mu.Unlock()
	rule := &nfdv1alpha1.NodeFeatureRule{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: "edit"}, rule); err != nil {
		return err
	}
	rule.Spec = labelRule("edit", prefix+"edit", fmt.Sprint(next)).Spec
	if err := r.client.Update(ctx, rule); err != nil {
		return err
	}
	r.model.mu.Lock()
	defer r.model.mu.Unlock()
	r.model.edit = next
	return nil
}

// create creates a rule that gives one more label to all nodes.
func (r *run) create(ctx context.Context) error {
	r.model.mu.Lock()
	next := r.model.last + 1
	r.model.mu.Unlock()
	err := r.client.Create(ctx, labelRule(extraName(next), extraKey(next), "true"))
	if client.IgnoreAlreadyExists(err) != nil { // an attempt whose response was lost has created it
		return err
	}
	r.model.mu.Lock()
	defer r.model.mu.Unlock()
	r.model.last, r.model.extra[next] = next, true
	return nil
}

// remove deletes the oldest of these rules.
func (r *run) remove(ctx context.Context) error {
	r.model.mu.Lock()
	all := slices.Sorted(maps.Keys(r.model.extra))
	if len(all) > 0 {
		r.model.removed["label "+extraKey(all[0])] = true
	}
	r.model.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := r.client.Delete(ctx, labelRule(extraName(all[0]), extraKey(all[0]), "true")); client.IgnoreNotFound(err) != nil {
		return err
	}
	r.model.mu.Lock()
	defer r.model.mu.Unlock()
	delete(r.model.extra, all[0])
	return nil
}

// summary prints the faults and the times to converge.
func (r *run) summary() {
	violations, versions := r.checker.Violations()
	r.say("%d faults in %d rounds over %d nodes, seed %d; %d versions of Nodes checked; %d violations", r.faults, r.rounds, len(r.nodes), r.seed, versions, len(violations))
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.byKind)) {
		list = append(list, fmt.Sprintf("%s %d", name, r.byKind[name]))
	}
	r.say("faults by kind: %s", strings.Join(list, ", "))
	if len(r.times) > 0 {
		sorted := slices.SortedFunc(slices.Values(r.times), func(a, b convergence) int { return int(a.took - b.took) })
		worst := sorted[len(sorted)-1]
		r.say("time to converge: median %.1f s, longest %.1f s in round %d, after %s",
			sorted[len(sorted)/2].took.Seconds(), worst.took.Seconds(), worst.round, strings.Join(worst.after, ", "))
	}
	for _, name := range programNames {
		p := r.programs[name]
		p.mu.Lock()
		if p.exits > 0 {
			r.say("%s ended by itself %d times", name, p.exits)
		}
		p.mu.Unlock()
	}
	r.say("workers that ended by themselves: %d; failed attempts to publish: %d", r.fleet.Exits(), r.fleet.Failed())
}
