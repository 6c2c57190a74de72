package index

import (
	"slices"
	"sync"

	"github.com/assay-project/assay/rules/requirements"
)

// Judge says of nodes whether they have what one pod asks for. It holds a reader's lock on its Index until End: it must not be
// kept, and is not safe for concurrent use.
type Judge struct {
	index     *Index
	required  []*set
	nobody    []bool // of each required one: whether all nodes lack the same
	preferred []weighted
	total     int64
	oldest    int64 // facts seen before count as unknown; 0: none do
}

type weighted struct {
	*set
	weight int64
}

// MaxScore is the score of a node that has everything that is preferred: the largest an extender may give.
const MaxScore = 10

// lacksFresh is what a node lacks that has not been heard of for too long.
const lacksFresh = "its features are stale"

var (
	staleReason   = newReason(lacksFresh)
	unknownReason = newReason("nothing is known of the node")
)

var judges = sync.Pool{New: func() any { return &Judge{} }}

// Judge begins to judge nodes by what a pod asks for, at a time in seconds since 1970. Every Judge must be ended.
func (v *Index) Judge(reqs *requirements.Requirements, now int64) *Judge {
	j := judges.Get().(*Judge)
	j.index = v
	if !j.find(reqs) {
		// Some requirement is new, or somebody must find out why nodes do not meet it.
		for _, r := range reqs.Required {
			v.prepare(r, true)
		}
		for _, p := range reqs.Preferred {
			v.prepare(p.Requirement, false)
		}
	}
	v.mu.RLock()
	j.fill(reqs)
	if reqs.StaleAfter > 0 {
		j.oldest = now - reqs.StaleAfter
	}
	return j
}

// prepare makes the set of a requirement if there is none, and finds out why nodes do not meet it if that is wanted. It does so by
// turns, between which others are served.
func (v *Index) prepare(r *requirements.Requirement, why bool) {
	turn := func() (done bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		s := v.set(r)
		return (s.built || s.build(v)) && (!why || s.explain(v))
	}
	for !turn() {
	}
}

// find reports whether everything needed is there already.
func (j *Judge) find(reqs *requirements.Requirements) bool {
	v := j.index
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, r := range reqs.Required {
		if s := v.sets[r.Key]; s == nil || !s.built || len(s.pending) > 0 {
			return false
		}
	}
	for _, p := range reqs.Preferred {
		if s := v.sets[p.Key]; s == nil || !s.built {
			return false
		}
	}
	return true
}

// fill collects the sets. One that was forgotten in between, by a thousand others that were asked for, is missing; its nodes
// count as not having it, and the pod is tried again.
func (j *Judge) fill(reqs *requirements.Requirements) {
	v := j.index
	j.required, j.nobody, j.preferred, j.total, j.oldest = j.required[:0], j.nobody[:0], j.preferred[:0], 0, 0
	for _, r := range reqs.Required {
		s := v.sets[r.Key]
		if s != nil && !s.built {
			s = nil // it was forgotten, and somebody else is making it anew
		}
		if s != nil {
			s.used.Store(v.clock)
		}
		j.required = append(j.required, s)
		j.nobody = append(j.nobody, s != nil && s.count == 0 && !s.costly && slices.Contains(s.holders[firstReason:], len(v.index)))
	}
	for _, p := range reqs.Preferred {
		j.total += int64(p.Weight)
		if s := v.sets[p.Key]; s != nil && s.built {
			s.used.Store(v.clock)
			j.preferred = append(j.preferred, weighted{s, int64(p.Weight)})
		}
	}
}

// End gives back what the Judge holds.
func (j *Judge) End() {
	j.index.mu.RUnlock()
	clear(j.required[:cap(j.required)])
	clear(j.preferred[:cap(j.preferred)])
	j.index = nil
	judges.Put(j)
}

// Check returns nil if the node has everything that is required, else why not; nobody says that the same is true of every
// node.
func (j *Judge) Check(name []byte) (why *Reason, nobody bool) {
	i, ok := j.index.index[string(name)] // the compiler makes no string of it
	if !ok {
		return &unknownReason, false
	}
	for k, s := range j.required {
		if s == nil {
			return &unknownReason, false
		}
		if !s.has(i) {
			return &s.reasons[s.why[i]], j.nobody[k]
		}
	}
	if j.index.nodes[i].stale(j.oldest) {
		return &staleReason, false
	}
	return nil, false
}

// Score returns how much of what is preferred a node has, from 0 to MaxScore, rounded.
func (j *Judge) Score(name []byte) int64 {
	i, ok := j.index.index[string(name)]
	if !ok || j.total == 0 {
		return 0
	}
	var met int64
	for _, s := range j.preferred {
		if s.has(i) {
			met += s.weight
		}
	}
	return (met*MaxScore + j.total/2) / j.total
}
