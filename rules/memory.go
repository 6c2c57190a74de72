package rules

import (
	"maps"
	"slices"
	"sync"

	"github.com/assay-project/assay/rules/facts"
)

// Cache remembers results across nodes, so that servers of one kind are evaluated once and a node of which one feature
// changed is evaluated for the rules that read it. It is safe for concurrent use. It gives the same outcomes as Eval.
type Cache struct {
	memory memory
}

// maxRemembered bounds the results a cache holds: 500 rules on 60 kinds of servers. A result is some hundred bytes, mostly
// shared.
const maxRemembered = 32_768

// maxReads is of how many features a result may be remembered. Rules that read more are rare, and evaluated each time.
const maxReads = 4

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{} }

// Eval evaluates all rules for one node. If before is the outcome of the same program for the same node, only rules that
// read what has changed since are looked at; if nothing came out differently, before itself is returned.
func (c *Cache) Eval(p *Program, in Input, before *Outcome) *Outcome {
	if before != nil && before.program == p {
		if o := p.update(in, before, &c.memory); o != nil {
			return o
		}
	}
	return p.eval(in, &c.memory)
}

// memoryKey identifies a rule and everything its result depends on.
type memoryKey struct {
	rule  *rule
	reads [maxReads]facts.FeatureID
}

// memory maps what a result depends on to the result. When it is full it starts over: what is in use comes back at once.
type memory struct {
	mu      sync.RWMutex
	results map[memoryKey]*result
}

func (m *memory) get(key memoryKey) *result {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.results[key]
}

func (m *memory) put(key memoryKey, r *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil || len(m.results) >= maxRemembered {
		m.results = make(map[memoryKey]*result)
	}
	m.results[key] = r
}

// memoryKey returns the key of a rule's result on this node. The second result is false if the rule reads something that is
// made up for this node alone.
func (e *evaluation) memoryKey(r *rule) (memoryKey, bool) {
	key := memoryKey{rule: r.id}
	if len(r.reads) > maxReads || r.set.sources != nil {
		return key, false
	}
	for i, name := range r.reads {
		if e.program.derived[name] {
			return key, false
		}
		key.reads[i] = e.in.Facts.Feature(name).ID()
	}
	return key, true
}

// update returns the outcome for facts of which some have changed, or nil if everything must be evaluated.
func (p *Program) update(in Input, before *Outcome, m *memory) *Outcome {
	if len(p.derived) > 0 || before.Failed != nil || !before.sameBesidesFacts(&in) {
		return nil
	}
	var e *evaluation
	var results []*result
	first := len(p.rules) // the first rule that came out differently
	for _, name := range p.reads {
		if in.Facts.Feature(name).ID() == before.facts.Feature(name).ID() {
			continue
		}
		for _, i := range p.readers[name] {
			r := p.rules[i]
			if !r.pure {
				return nil
			}
			if e == nil {
				e = newEvaluation(p, &in)
			}
			res := e.remembered(r, m)
			if res == before.results[i] {
				continue
			}
			if results == nil {
				results = slices.Clone(before.results)
			}
			results[i] = res
			first = min(first, i)
		}
	}
	if results == nil {
		return before
	}
	if len(p.chained) > 0 && p.chained[len(p.chained)-1] > first {
		return nil // a rule behind it looks at what it produced
	}
	o := newOutcome(p, &in)
	o.results = results
	return o
}

// sameBesidesFacts reports whether everything that an outcome depends on is as it was, but for the facts.
func (o *Outcome) sameBesidesFacts(in *Input) bool {
	if !maps.Equal(o.requested, in.Labels) {
		return false
	}
	if !o.program.perNode {
		return true
	}
	return o.node.Name == in.Node.Name && len(in.Publishers) == 0 &&
		maps.Equal(o.node.Labels, in.Node.Labels) && maps.Equal(o.node.Annotations, in.Node.Annotations)
}
