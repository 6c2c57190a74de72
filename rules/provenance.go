package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/keys"
)

// ID identifies the object across restarts: its UID, or its name if it has none.
func (s *RuleSet) ID() string {
	if s.UID != "" {
		return s.UID
	}
	return s.Name
}

// Fingerprints returns, by ID, a hash of all inputs of each object except the facts of a node: its source, the settings, and the
// inputs of the objects whose outputs it reads. Objects with templates or actions may set any name, so all objects that read
// outputs depend on them.
func (p *Program) Fingerprints(settings string) map[string]string {
	out := make(map[string]string, len(p.sets))
	sources := p.sources()
	for i, s := range p.sets {
		parts := []string{settings, s.hash()}
		for _, j := range reachable(i, func(i int) []int { return sources.of(p.sets[i]) }) {
			parts = append(parts, p.sets[j].ID(), p.sets[j].hash())
		}
		sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
		out[s.ID()] = hex.EncodeToString(sum[:8])
	}
	return out
}

// reachable returns the other indices that can be reached from an index, sorted.
func reachable(from int, next func(int) []int) []int {
	seen, todo := map[int]bool{from: true}, []int{from}
	var out []int
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, to := range next(at) {
			if !seen[to] {
				seen[to] = true
				out, todo = append(out, to), append(todo, to)
			}
		}
	}
	slices.Sort(out)
	return out
}

// sources holds the indices of objects with outputs that others may read.
type sources struct {
	all     []int            // objects that set labels or variables
	open    []int            // objects that may set any name
	names   map[string][]int // objects that set a label or variable
	derived map[string][]int // objects that derive a feature
}

func (p *Program) sources() *sources {
	out := &sources{names: map[string][]int{}, derived: map[string][]int{}}
	put := func(list []int, i int) []int {
		if n := len(list); n > 0 && list[n-1] == i {
			return list
		}
		return append(list, i)
	}
	for i, s := range p.sets {
		for _, r := range s.rules {
			open := r.varsTemplate != nil || r.labelsTemplate != nil || len(r.actions) > 0
			for _, list := range [][]assignment{r.vars, r.labels} {
				for _, a := range list {
					open = open || a.raw == ""
					out.names[a.raw] = put(out.names[a.raw], i)
					out.all = put(out.all, i)
				}
			}
			if open {
				out.all, out.open = put(out.all, i), put(out.open, i)
			}
			for _, feature := range r.derives {
				out.derived[feature] = put(out.derived[feature], i)
			}
		}
	}
	return out
}

// of returns the indices of the objects whose outputs a set reads, which may include the set itself.
func (s *sources) of(set *RuleSet) (out []int) {
	for _, r := range set.rules {
		for _, feature := range r.reads {
			out = append(out, s.derived[feature]...)
		}
		switch {
		case r.allMatched:
			out = append(out, s.all...)
		case r.readsMatched:
			out = append(out, s.open...)
			for _, name := range r.matchedNames {
				out = append(out, s.names[name]...)
			}
		}
	}
	return out
}

// Sets returns the objects in evaluation order.
func (p *Program) Sets() []*RuleSet { return p.sets }

// MayGive reports whether the set may write a key on some node.
func (s *RuleSet) MayGive(kind keys.Kind, key string) bool {
	return slices.ContainsFunc(s.rules, func(r *rule) bool { return r.open(kind) || r.names(kind, key) })
}

// Names reports whether the source of the set shows that it may write a key on some node. MayGive is also true of sets that may write
// any key.
func (s *RuleSet) Names(kind keys.Kind, key string) bool {
	return slices.ContainsFunc(s.rules, func(r *rule) bool { return r.names(kind, key) })
}

// open reports whether the rule may write any key of a kind.
func (r *rule) open(kind keys.Kind) bool {
	return len(r.actions) > 0 || kind == keys.Label && r.labelsTemplate != nil && r.labelsTemplate.WritesAny() ||
		kind == keys.Taint && len(r.taints) > 0 || kind == keys.Condition && len(r.nodeConditions) > 0 ||
		slices.ContainsFunc(slices.Concat(r.labels, r.annotations, r.resources), func(a assignment) bool { return a.kind == kind && a.raw == "" })
}

// names reports whether a literal key of the rule, or the beginning of one in its template, is that of a key.
func (r *rule) names(kind keys.Kind, key string) bool {
	if slices.ContainsFunc(slices.Concat(r.labels, r.annotations, r.resources), func(a assignment) bool {
		return a.kind == kind && a.full == key
	}) {
		return true
	}
	switch kind {
	case keys.Taint:
		return slices.ContainsFunc(r.taints, func(t taint) bool { return t.key.IsLiteral() && literal(t.key)+":"+string(t.effect) == key })
	case keys.Condition:
		return slices.ContainsFunc(r.nodeConditions, func(n nodeCondition) bool { return n.kind.IsLiteral() && literal(n.kind) == key })
	}
	if kind != keys.Label || r.labelsTemplate == nil || r.labelsTemplate.WritesAny() {
		return false
	}
	_, name := keys.Split(key)
	return r.labelsTemplate.MayWrite(key) || r.keys.Qualify(name) == key && r.labelsTemplate.MayWrite(name)
}

// Owner returns the object that set the value of a key. The set is nil if a NodeFeature requests the label; ok is false if nothing
// sets the key.
func (o *Outcome) Owner(kind keys.Kind, key string) (set *RuleSet, ok bool) {
	space := o.get().spaces[kind]
	if space == nil {
		return nil, false
	}
	c, ok := space.find(key)
	if c.rule == nil {
		return nil, ok
	}
	return c.rule.set, ok
}

// Deleters returns the objects that delete a key on the node.
func (o *Outcome) Deleters(kind keys.Kind, key string) (out []*RuleSet) {
	for i, r := range o.results {
		for j := range r.outputs {
			if at := &r.outputs[j]; at.op == opDelete && at.kind == kind && at.key == key {
				out = append(out, o.program.rules[i].set)
			}
		}
	}
	return out
}

// Given is a key that an object writes on a node. Set is nil if a NodeFeature requests the label.
type Given struct {
	Set   *RuleSet
	Kind  keys.Kind
	Key   string
	Value string // of a taint: without key and effect
}

// Given iterates over the keys that the outcome writes on the Node.
func (o *Outcome) Given() iter.Seq[Given] {
	return func(yield func(Given) bool) {
		spaces := o.get().spaces
		for _, kind := range keys.NodeKinds {
			for _, c := range spaces[kind].claims {
				g := Given{Kind: kind, Key: c.key, Value: spaces[kind].values[c.key]}
				if c.rule != nil {
					g.Set = c.rule.set
				}
				if c.key != "" && !yield(g) {
					return
				}
			}
		}
	}
}
