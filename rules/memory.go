package rules

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Cache caches results across nodes: servers of one kind are evaluated once, and a changed feature re-evaluates only the rules that
// read it. Its outcomes equal those of Eval. It is safe for concurrent use.
type Cache struct {
	memory memory

	mu      sync.Mutex
	program *Program
	only    *Program // see Keep
	wholes  map[uint64]*whole
}

// whole is the outcome of a program for one set of the facts that the program reads and one set of requested labels.
type whole struct {
	reads     []facts.FeatureID
	requested map[string]string
	results   []*result
	steps     int
	failed    *Failure
	merged    *lazy
}

// maxWholes is the maximum number of outcomes in a cache. With more kinds of nodes, caching outcomes does not help.
const maxWholes = 4096

// maxRemembered is the maximum number of results in a cache: 500 rules on 60 kinds of servers. A result takes a few hundred bytes,
// most of them shared.
const maxRemembered = 32_768

// maxReads is the maximum number of features in a cache key. Few rules read more; they are evaluated each time.
const maxReads = 4

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{} }

// Eval evaluates all rules for one node. If before is the outcome of the same program for the same node, Eval evaluates only rules
// that read changed features, and returns before itself if nothing changed.
func (c *Cache) Eval(p *Program, in Input, before *Outcome) *Outcome {
	if before != nil && before.program == p {
		if o := p.update(in, before, &c.memory); o != nil {
			return o
		}
	}
	if p.perNode {
		return p.eval(in, &c.memory)
	}
	var space [64]facts.FeatureID // enough for the programs of most clusters
	reads := space[:0]
	for _, name := range p.reads {
		reads = append(reads, in.Facts.Feature(name).ID())
	}
	hash := maphash.Comparable(wholeSeed, len(reads))
	for _, id := range reads {
		hash = hash*31 + maphash.Comparable(wholeSeed, id)
	}
	for _, key := range slices.Sorted(maps.Keys(in.Labels)) {
		hash = hash*31 + maphash.Comparable(wholeSeed, [2]string{key, in.Labels[key]})
	}
	if w := c.whole(p, hash); w != nil && slices.Equal(w.reads, reads) && maps.Equal(w.requested, in.Labels) {
		return w.outcome(p, &in)
	}
	o := p.eval(in, &c.memory)
	c.learn(p, hash, &whole{reads: slices.Clone(reads), requested: in.Labels, results: o.results, steps: o.steps, failed: o.Failed, merged: o.merged})
	return o
}

// Keep drops the results of rules that are not in the program, and stops caching results of other rules: an evaluation of an older
// program may still be running, and its results would keep old rules in memory.
func (c *Cache) Keep(p *Program) {
	live := make(map[*rule]bool, len(p.rules))
	for _, r := range p.rules {
		live[r.id] = true
	}
	c.memory.keep(live)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.only = p; c.program != p {
		c.program, c.wholes = nil, nil
	}
}

var wholeSeed = maphash.MakeSeed()

func (c *Cache) whole(p *Program, hash uint64) *whole {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.program != p {
		return nil
	}
	return c.wholes[hash]
}

func (c *Cache) learn(p *Program, hash uint64, w *whole) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.only != nil && c.only != p {
		return
	}
	if c.program != p || len(c.wholes) >= maxWholes {
		c.program, c.wholes = p, map[uint64]*whole{}
	}
	c.wholes[hash] = w
}

// outcome returns the outcome for another node. It shares the merged outputs.
func (w *whole) outcome(p *Program, in *Input) *Outcome {
	o := newOutcome(p, in)
	o.results, o.steps, o.Failed, o.merged = w.results, w.steps, w.failed, w.merged
	return o
}

// memoryKey identifies a rule and all inputs of its result.
type memoryKey struct {
	rule  *rule
	reads [maxReads]facts.FeatureID
}

// memory maps the inputs of a result to the result. It is cleared when it is full; the next evaluations cache results in use again.
type memory struct {
	mu      sync.RWMutex
	results map[memoryKey]*result
	live    map[*rule]bool // rules whose results are cached; nil: all rules
}

func (m *memory) keep(live map[*rule]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = live
	maps.DeleteFunc(m.results, func(key memoryKey, _ *result) bool { return !live[key.rule] })
}

func (m *memory) get(key memoryKey) *result {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.results[key]
}

func (m *memory) put(key memoryKey, r *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live != nil && !m.live[key.rule] {
		return
	}
	if m.results == nil || len(m.results) >= maxRemembered {
		m.results = make(map[memoryKey]*result)
	}
	m.results[key] = r
}

// memoryKey returns the key of a rule's result on this node. The second result is false if the rule reads something specific to the
// node.
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

// update returns the outcome after some facts changed, or nil if all rules must be evaluated.
func (p *Program) update(in Input, before *Outcome, m *memory) *Outcome {
	if len(p.derived) > 0 || before.Failed != nil || before.steps > roomy || !before.sameBesidesFacts(&in) {
		return nil
	}
	var e *evaluation
	var results []*result
	steps := before.steps
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
			if p.feeds(i, res) || p.feeds(i, before.results[i]) {
				return nil // a later rule reads its outputs
			}
			if results == nil {
				results = slices.Clone(before.results)
			}
			results[i] = res
			steps += res.steps - before.results[i].steps
		}
	}
	if results == nil {
		return before
	}
	if steps > roomy {
		return nil // the budget may now run out at another rule
	}
	o := newOutcome(p, &in)
	o.results, o.steps = results, steps
	return o
}

// roomy is the maximum number of steps of all rules at which each rule still has its whole budget.
const roomy = NodeBudget - RuleBudget

// feeds reports whether a rule after index i may read its outputs.
func (p *Program) feeds(i int, r *result) bool {
	if len(p.chained) == 0 || p.chained[len(p.chained)-1] <= i {
		return false
	}
	if p.allMatched || p.rules[i].set.readsVars {
		return true
	}
	return slices.ContainsFunc(r.outputs, func(out output) bool {
		return (out.kind == keys.Label || out.kind == keys.Var) && p.matched[out.raw]
	})
}

// sameBesidesFacts reports whether the input of an outcome is unchanged except for the facts.
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
