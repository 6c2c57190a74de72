package index

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// Answer describes which nodes meet requirements.
type Answer struct {
	// Nodes is the number of all nodes, Matching the number that meet all requirements.
	Nodes, Matching int
	// Sample lists the first matching nodes by name.
	Sample []string
	// Nearest is a node that lacks the least, and Lacks the first thing that it lacks; empty if a node matches.
	Nearest, Lacks string
}

// Query returns which nodes have everything that is required, with at most sample names.
func (v *Index) Query(reqs *requirements.Requirements, sample int) Answer {
	for _, r := range reqs.Required {
		v.prepare(r, false)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := Answer{Nodes: len(v.index)}
	sets := make([]*set, len(reqs.Required))
	for i, r := range reqs.Required {
		sets[i] = v.set(r)
		for !sets[i].built { // only if it was just evicted
			sets[i].build(v)
		}
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.name == "" || slices.ContainsFunc(sets, func(s *set) bool { return !s.has(int32(i)) }) { //nolint:gosec // see number
			continue
		}
		out.Matching++
		out.Sample = append(out.Sample, n.name)
	}
	slices.Sort(out.Sample)
	if len(out.Sample) > sample {
		out.Sample = slices.Clone(out.Sample[:sample])
	}
	if out.Matching == 0 {
		out.Nearest, out.Lacks = v.nearest(sets)
	}
	return out
}

// nearest returns the node that lacks the fewest requirements, the first of them by name. It checks one node of each kind, within a
// limited number of batches.
func (v *Index) nearest(sets []*set) (name, lacks string) {
	type candidate struct {
		name   string
		unmet  int
		lacks  string
		values int
	}
	var best *candidate
	work := 0
	seen := map[string]bool{}
	for i := range v.nodes {
		n := &v.nodes[i]
		if n.name == "" {
			continue
		}
		c := candidate{name: n.name, values: -len(n.in.Facts.Names())}
		identity, memorable := "", true
		for _, s := range sets {
			k, ok := s.kindOf(n)
			memorable = memorable && ok
			identity += k.text()
		}
		if memorable && seen[identity] && best.name < c.name {
			continue
		}
		seen[identity] = true
		if work > maxTurns*turnWork {
			continue
		}
		of := &produced{index: v, node: n}
		for _, s := range sets {
			in, matched := n.inputFor(s.req), of.read(s.req)
			work += 3*s.most + nodeWork // evaluated, scanned, and counted
			if s.req.ReadsMatched() {
				work += rulesWork
			}
			c.unmet += s.req.Unmet(in, matched)
			if c.lacks == "" {
				c.lacks = s.req.Lacks(in, matched)
			}
		}
		if best == nil || cmp.Or(cmp.Compare(c.unmet, best.unmet), cmp.Compare(c.values, best.values), cmp.Compare(c.name, best.name)) < 0 {
			best = &c
		}
	}
	if best == nil {
		return "", ""
	}
	return best.name, best.lacks
}

// maxTurns is the maximum number of batches for the search for the nearest node, which is only a hint for users.
const maxTurns = 16

// text returns the kind as a key.
func (k kind) text() string {
	out := make([]byte, 0, len(k)*3*8)
	for _, id := range k {
		for _, part := range id {
			for shift := 0; shift < 64; shift += 8 {
				out = append(out, byte(part>>shift))
			}
		}
	}
	return string(out)
}

// Finding is the result of one requirement on one node.
type Finding struct {
	// Origin is where the requirement comes from: an annotation, a request, a policy.
	Origin string `json:"origin"`
	// Weight is the weight of a preference; 0: a requirement.
	Weight int32 `json:"weight,omitempty"`
	// Met reports whether the node meets it.
	Met bool `json:"met"`
	// Unknown is set if it is unknown whether the node meets it: the worker has not read a source since the node booted.
	Unknown bool `json:"unknown,omitempty"`
	// Lacks is what the node lacks first, in the words of the events; Why has the details.
	Lacks string `json:"lacks,omitempty"`
	Why   string `json:"why,omitempty"`
}

// Explain returns the result of each requirement on a node, at a time in seconds since 1970; ok is false if the node does not
// exist.
func (v *Index) Explain(reqs *requirements.Requirements, name string, now int64) (list []Finding, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	i, ok := v.index[name]
	if !ok {
		return nil, false
	}
	n := &v.nodes[i]
	matched := (&produced{index: v, node: n}).get()
	find := func(r *requirements.Requirement, weight int32) {
		f := Finding{Origin: r.Origin, Weight: weight}
		in := n.inputFor(r)
		if f.Met, _ = r.Eval(in, matched); !f.Met {
			f.Lacks, f.Why, f.Unknown = r.Lacks(in, matched), r.Why(in, matched), len(r.Unread(in)) > 0
		}
		list = append(list, f)
	}
	for _, r := range reqs.Required {
		find(r, 0)
	}
	if reqs.StaleAfter > 0 {
		f := Finding{Origin: reqs.StaleOrigin, Met: !n.stale(now - reqs.StaleAfter)}
		if !f.Met {
			f.Lacks = lacksFresh
			f.Why = fmt.Sprintf("its features were last known %s ago; at most %s are allowed", seconds(now-n.seen), seconds(reqs.StaleAfter))
		}
		list = append(list, f)
	}
	for _, p := range reqs.Preferred {
		find(p.Requirement, p.Weight)
	}
	return list, true
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// Knows reports whether there is a node of this name.
func (v *Index) Knows(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.index[name]
	return ok
}

// Names returns the names of all nodes, sorted.
func (v *Index) Names() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]string, 0, len(v.index))
	for name := range v.index {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Input returns the inputs of rules for a node, including the outputs of the rules for it.
func (v *Index) Input(name string) (in rules.Input, outputs map[string]string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	i, ok := v.index[name]
	if !ok {
		return rules.Input{}, nil, false
	}
	n := &v.nodes[i]
	return n.complete(), (&produced{index: v, node: n}).get(), true
}
