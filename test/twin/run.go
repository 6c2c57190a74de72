//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-project/assay/test/cluster"
)

// result counts what was compared.
type result struct {
	rounds, versions, compared, held int
	steps                            map[string]int
	longest                          time.Duration
}

// maxSteps is the maximum number of changes between two comparisons.
const maxSteps = 5

// run compares for the duration, on a control plane with Assay's CRDs.
func (o options) run(ctx context.Context, c *cluster.Cluster) error {
	w, err := newWorld(ctx, c, o)
	if err != nil {
		return err
	}
	defer w.close()
	h, r := newHistory(w.first), &result{steps: map[string]int{}}
	began := time.Now()
	s, err := w.rest(ctx)
	if err != nil {
		return fmt.Errorf("at the start: %w", err)
	}
	if err := w.compare(ctx, h, r, s, "the start", time.Since(began)); err != nil {
		return err
	}
	for began := time.Now(); r.rounds == 0 || time.Since(began) < o.duration; {
		if err := w.round(ctx, h, r); err != nil {
			return fmt.Errorf("round %d: %w", r.rounds, err)
		}
	}
	return w.summary(ctx, r)
}

// round makes some changes, waits until they are on the Nodes, and compares.
func (w *world) round(ctx context.Context, h *history, r *result) error {
	r.rounds++
	began := time.Now()
	var done []string
	for range 1 + w.draw.IntN(maxSteps) {
		name, err := w.takeStep(ctx)
		if err != nil {
			return err
		}
		done = append(done, name)
		r.steps[name]++
	}
	s, err := w.rest(ctx)
	if err != nil {
		return fmt.Errorf("after %s: %w", strings.Join(done, ", "), err)
	}
	return w.compare(ctx, h, r, s, strings.Join(done, ", "), time.Since(began))
}

// compare compares what has happened since the last rest, and what there is now.
func (w *world) compare(ctx context.Context, h *history, r *result, s state, done string, took time.Duration) error {
	r.longest = max(r.longest, took)
	wrong, versions, err := h.check(ctx, w, s)
	r.versions += versions
	if err != nil {
		return err
	}
	leaks, err := w.leaks(ctx)
	if wrong = append(wrong, leaks...); err != nil {
		return err
	}
	w.say("round %d: %s (%.1f s)", r.rounds, done, took.Seconds())
	if len(wrong) > 0 {
		return fmt.Errorf("after %s: %d differences:\n  %s", done, len(wrong), strings.Join(wrong[:min(len(wrong), maxPrinted)], "\n  "))
	}
	if w.form == "B" {
		held, err := w.explain(ctx, h, s)
		if r.held = max(r.held, held); err != nil {
			return err
		}
	}
	if w.form == "A" { // otherwise something is changing
		if err := w.evaluateAll(ctx, s); err != nil {
			return err
		}
		if err := w.baselineIsRight(ctx, s); err != nil {
			return err
		}
	}
	for _, n := range w.nodes {
		r.compared += len(keysOf(s.nodes["/"+n.name]))
	}
	if err := w.review(ctx, s); err != nil {
		return err
	}
	return w.filter(ctx, s)
}

// summary prints what was compared, and fails if the nodes are too much alike.
func (w *world) summary(ctx context.Context, r *result) error {
	s, err := w.state(ctx)
	if err != nil {
		return err
	}
	p := program(s.rules)
	counts := map[string]map[string]int{}  // by kind and publisher
	values := map[string]map[string]bool{} // by key
	with := map[string]int{}               // nodes by key
	forms := map[form]int{}
	for _, n := range w.nodes {
		forms[n.form]++
		want, owners := evaluate(p, s.input(s.nodes["/"+n.name], w.held(n)))
		for key, value := range want {
			kind, _, _ := strings.Cut(strings.TrimPrefix(key, "extended "), " ")
			publisher := w.rules[owners[key]].family
			switch {
			case owners[key] == "":
				publisher = "requested"
			case publisher == "worker" && n.form == sharing:
				publisher = "worker, sets"
			}
			if counts[kind] == nil {
				counts[kind] = map[string]int{}
			}
			counts[kind][publisher]++
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
			with[key]++
		}
	}
	differ := 0
	for key, all := range values {
		if len(all) > 1 || with[key] < len(w.nodes)/2 {
			differ++
		}
	}
	w.say("form %s, seed %d: %d nodes, %d rules, %d rounds, %d versions of Nodes, %d keys compared at rest; 0 differences", w.form, w.seed, len(w.nodes), len(w.rules), r.rounds, r.versions, r.compared)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		var list []string
		for _, publisher := range slices.Sorted(maps.Keys(counts[kind])) {
			list = append(list, fmt.Sprintf("%s %d", publisher, counts[kind][publisher]))
		}
		w.say("  %s: %s", kind, strings.Join(list, "; "))
	}
	var list []string
	for f, name := range formNames {
		list = append(list, fmt.Sprintf("%s %d", name, forms[form(f)]))
	}
	w.say("  nodes: %s", strings.Join(list, "; "))
	list = nil
	for _, name := range slices.Sorted(maps.Keys(r.steps)) {
		list = append(list, fmt.Sprintf("%s %d", name, r.steps[name]))
	}
	w.say("  changes: %s", strings.Join(list, "; "))
	w.say("  %d of %d keys differ between nodes; longest round %.1f s; at most %d keys held; %d masked values searched for", differ, len(values), r.longest.Seconds(), r.held, len(w.draw.secrets))
	if 2*differ < len(values) {
		return fmt.Errorf("only %d of %d keys differ between nodes, want half: the comparison would not notice the outcome of another node", differ, len(values))
	}
	return nil
}
