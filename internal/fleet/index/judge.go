package index

import (
	"slices"

	"github.com/assay-project/assay/rules/requirements"
)

// Judge decides which nodes meet the requirements of one pod. It holds a read lock on its Index until End is called: it must not be
// kept, and is not safe for concurrent use.
type Judge struct {
	index     *Index
	required  []*set
	noNode    []bool // for each requirement: whether all nodes lack the same
	preferred []weighted
	total     int64
	oldest    int64 // older facts count as unknown; 0: none do
}

type weighted struct {
	*set
	weight int64
}

// MaxScore is the score of a node that meets all preferences: the maximum score of an extender.
const MaxScore = 10

// lacksFresh is the reason for a node whose features are stale.
const lacksFresh = "its features are stale"

var (
	staleReason   = newReason(lacksFresh)
	unknownReason = newReason("nothing is known of the node")
)

// Judge returns a Judge for requirements, at a time in seconds since 1970. The caller must call End.
func (v *Index) Judge(reqs *requirements.Requirements, now int64) *Judge {
	j := &Judge{index: v}
	if !j.find(reqs) {
		// A requirement is new, or the reasons why nodes do not meet it must be determined.
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

// prepare creates the set of a requirement if there is none, and determines why nodes do not meet it if requested. It works in
// batches, between which other requests are served.
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

// find reports whether all required sets exist already.
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

// fill collects the sets. A set that was evicted in the meantime, by a thousand other requirements, is missing; its nodes count as
// not matching, and the pod is retried.
func (j *Judge) fill(reqs *requirements.Requirements) {
	v := j.index
	for _, r := range reqs.Required {
		s := v.sets[r.Key]
		if s != nil && !s.built {
			s = nil // it was evicted, and another request is rebuilding it
		}
		if s != nil {
			s.used.Store(v.clock)
		}
		j.required = append(j.required, s)
		j.noNode = append(j.noNode, s != nil && s.count == 0 && !s.costly && slices.Contains(s.holders[firstReason:], len(v.index)))
	}
	for _, p := range reqs.Preferred {
		j.total += int64(p.Weight)
		if s := v.sets[p.Key]; s != nil && s.built {
			s.used.Store(v.clock)
			j.preferred = append(j.preferred, weighted{s, int64(p.Weight)})
		}
	}
}

// End releases the lock.
func (j *Judge) End() { j.index.mu.RUnlock() }

// Check returns nil if the node meets all requirements, else the reason; noNode means that no node meets the requirement for the
// same reason.
func (j *Judge) Check(name []byte) (why *Reason, noNode bool) {
	i, ok := j.index.index[string(name)] // the compiler makes no string of it
	if !ok {
		return &unknownReason, false
	}
	for k, s := range j.required {
		if s == nil {
			return &unknownReason, false
		}
		if !s.has(i) {
			return &s.reasons[s.why[i]], j.noNode[k]
		}
	}
	if j.index.nodes[i].stale(j.oldest) {
		return &staleReason, false
	}
	return nil, false
}

// Score returns the weighted share of preferences that a node meets, from 0 to MaxScore, rounded.
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
