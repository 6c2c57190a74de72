//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// history has what the API server stored since the last rest, and what rules made of it. A program reads each kind through a watch of its
// own, so it may have seen any version of one kind together with any of another.
type history struct {
	base     state
	held     map[string]*nfdv1alpha1.NodeFeature // the last object of a worker that was deleted, by node
	ever     map[string]map[string]map[string]bool
	outcomes map[string]map[string]string // by program and input
	programs map[string]*rules.Program
}

func newHistory(base state) *history {
	return &history{
		base: base, held: map[string]*nfdv1alpha1.NodeFeature{}, ever: map[string]map[string]map[string]bool{},
		outcomes: map[string]map[string]string{}, programs: map[string]*rules.Program{},
	}
}

// window is what happened between two rests.
type window struct {
	features   []change[nfdv1alpha1.NodeFeature]
	namespaces []change[corev1.Namespace]
	rules      []change[nfdv1alpha1.NodeFeatureRule]
	nodes      []change[corev1.Node]
	sets       []change[assayv1alpha1.NodeFeatureSet]
}

// outcome returns the keys that the rules of a state give a node.
func (h *history) outcome(all map[string]*nfdv1alpha1.NodeFeatureRule, in input) map[string]string {
	id := versions(all)
	p := h.programs[id]
	if p == nil {
		p = program(all)
		h.programs[id] = p
	}
	out, ok := h.outcomes[id+" "+in.id]
	if !ok {
		out, _ = evaluate(p, in)
		h.outcomes[id+" "+in.id] = out
	}
	return out
}

func versions(all map[string]*nfdv1alpha1.NodeFeatureRule) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s:%s:%d,", key, all[key].UID, all[key].Generation)
	}
	return b.String()
}

// positions returns a map after each number of its changes that concern something.
func positions[T any](base map[string]*T, changes []change[T], concerns func(before, after *T) bool) []map[string]*T {
	now := maps.Clone(base)
	out := []map[string]*T{maps.Clone(now)}
	for _, c := range changes {
		before := now[c.key]
		if c.after == nil {
			delete(now, c.key)
		} else {
			now[c.key] = c.after
		}
		if concerns(before, c.after) {
			out = append(out, maps.Clone(now))
		}
	}
	return out
}

// possible has, for a node, the values that each key could have, and the keys that it had in each state.
type possible struct {
	values map[string]map[string]bool
	always map[string]bool
}

func (p *possible) add(out map[string]string) {
	if p.values == nil {
		p.values, p.always = map[string]map[string]bool{}, map[string]bool{}
		for key := range out {
			p.always[key] = true
		}
	}
	for key, value := range out {
		if p.values[key] == nil {
			p.values[key] = map[string]bool{}
		}
		p.values[key][value] = true
	}
	for key := range p.always {
		if _, is := out[key]; !is {
			delete(p.always, key)
		}
	}
}

// of returns what was possible for a node.
func (h *history) of(name string, w window, end state) *possible {
	about := func(before, after *nfdv1alpha1.NodeFeature) bool {
		return before != nil && before.Labels[nfdv1alpha1.NodeNameLabel] == name || after != nil && after.Labels[nfdv1alpha1.NodeNameLabel] == name
	}
	mine := map[string]*nfdv1alpha1.NodeFeature{} // few, to be copied
	for key, f := range h.base.features {
		if about(f, nil) {
			mine[key] = f
		}
	}
	var changes []change[nfdv1alpha1.NodeFeature]
	held := map[*nfdv1alpha1.NodeFeature]bool{nil: true, h.held[name]: true, mine[namespace+"/"+name]: true}
	for _, c := range w.features {
		if about(nil, c.after) || c.after == nil {
			changes = append(changes, c)
		}
		if c.after != nil && c.key == namespace+"/"+name {
			held[c.after] = true
		}
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range []*corev1.Node{h.base.nodes["/"+name], end.nodes["/"+name]} {
		if n != nil {
			nodes[facing(n)] = n
		}
	}
	for _, c := range w.nodes {
		if c.key == "/"+name && c.after != nil {
			nodes[facing(c.after)] = c.after
		}
	}
	all := func(_, _ *corev1.Namespace) bool { return true }
	var inputs []input
	known := map[string]bool{}
	features := positions(mine, changes, func(before, after *nfdv1alpha1.NodeFeature) bool { return before != nil || after != nil })
	for _, namespaces := range positions(h.base.namespaces, w.namespaces, all) {
		for _, features := range features {
			s := state{namespaces: namespaces, features: features, sets: end.sets}
			_, exists := features[namespace+"/"+name]
			for _, n := range nodes {
				for own := range held {
					if own != nil && (exists || slices.ContainsFunc(own.OwnerReferences, ownedByAnother(n))) {
						continue
					}
					if in := s.input(n, own); !known[in.id] {
						known[in.id] = true
						inputs = append(inputs, in)
					}
				}
			}
		}
	}
	out := &possible{}
	edited := positions(h.base.rules, w.rules, func(before, after *nfdv1alpha1.NodeFeatureRule) bool {
		return before == nil || after == nil || before.Generation != after.Generation || before.UID != after.UID
	})
	for _, all := range edited {
		for _, in := range inputs {
			out.add(h.outcome(all, in))
		}
	}
	return out
}

// facing returns what rules read of a Node.
func facing(n *corev1.Node) string {
	return fmt.Sprint(n.UID, n.Labels["pool"], n.Status.NodeInfo.KubeletVersion)
}

// check compares each version of each Node since the last rest with what was possible.
func (h *history) check(ctx context.Context, w *world, end state) (wrong []string, versions int, err error) {
	if err := w.catchUp(ctx, end); err != nil {
		return nil, 0, err
	}
	win, err := w.cut()
	if err != nil {
		return nil, 0, err
	}
	sets := maps.Clone(h.base.sets)
	for _, c := range win.sets { // their names are hashes of their content; one may have been deleted again
		if c.after != nil {
			sets[c.key] = c.after
		}
	}
	maps.Copy(sets, end.sets)
	merged := end
	merged.sets = sets
	for _, n := range w.nodes {
		p := h.of(n.name, win, merged)
		ever := h.ever[n.name]
		if ever == nil {
			ever = map[string]map[string]bool{}
			h.ever[n.name] = ever
		}
		for key, values := range p.values {
			if ever[key] == nil {
				ever[key] = map[string]bool{}
			}
			maps.Copy(ever[key], values)
		}
		allowed := p.values
		if w.form == "B" {
			allowed = ever
		}
		before := h.base.nodes["/"+n.name]
		for _, c := range win.nodes {
			if c.key != "/"+n.name {
				continue
			}
			if before == nil || c.after == nil || before.UID != c.after.UID {
				before = c.after
			}
			if c.after == nil {
				continue
			}
			versions++
			now := keysOf(c.after)
			for key, value := range now {
				if !allowed[key][value] {
					wrong = append(wrong, fmt.Sprintf("%s version %s has %s=%q, which the rules never gave it: %v", n.name, c.after.ResourceVersion, key, value, slices.Sorted(maps.Keys(allowed[key]))))
				}
			}
			for key := range keysOf(before) {
				if _, is := now[key]; !is && p.always[key] {
					wrong = append(wrong, fmt.Sprintf("%s version %s lost %s, which the rules give it in each state", n.name, c.after.ResourceVersion, key))
				}
			}
			before = c.after
		}
		h.hold(n.name, win, end)
	}
	h.base = end
	return wrong, versions, nil
}

// hold remembers the last object of a worker that was deleted.
func (h *history) hold(name string, w window, end state) {
	key := namespace + "/" + name
	if end.features[key] != nil {
		delete(h.held, name)
		return
	}
	if f := h.base.features[key]; f != nil {
		h.held[name] = f
	}
	for _, c := range w.features {
		if c.key == key && c.after != nil {
			h.held[name] = c.after
		}
	}
}
