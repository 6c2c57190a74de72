// Package assembly puts the rules of a cluster together.
package assembly

import (
	"sync"
	"time"

	"github.com/assay-project/assay/rules"
)

// Registry holds one RuleSet for each object that has rules, and links them into a program. It is safe for concurrent use.
type Registry struct {
	opt rules.Options

	mu      sync.Mutex
	sets    map[string]*rules.RuleSet
	builtIn []*rules.RuleSet
	linked  *Linked
	changed func()
}

// Linked is the program at one point in time.
type Linked struct {
	Program *rules.Program
	// Cache remembers results across nodes. It survives a change of the program as far as the rules do.
	Cache *rules.Cache
	// Generation grows with each change of the rules.
	Generation int64
}

// NewRegistry returns an empty registry for rules that are compiled under these options. It is not ready: until Ready is called,
// Program returns nil, so that a start with half of the rules cannot remove what the other half gives.
func NewRegistry(opt rules.Options) *Registry {
	return &Registry{opt: opt, sets: map[string]*rules.RuleSet{}}
}

// Options that the rules are compiled under.
func (r *Registry) Options() rules.Options { return r.opt }

// OnChange has f called, outside of any lock, whenever the program has changed.
func (r *Registry) OnChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = f
}

// Put adds the rules of an object, in place of those it had. The same rules again change nothing.
func (r *Registry) Put(set *rules.RuleSet) {
	r.update(func() bool {
		old := r.sets[set.Name]
		r.sets[set.Name] = set
		return old == nil || old.Hash() != set.Hash()
	})
}

// Remove drops the rules of an object.
func (r *Registry) Remove(name string) {
	r.update(func() bool {
		_, ok := r.sets[name]
		delete(r.sets, name)
		return ok
	})
}

// Replace adds the rules of several objects, in place of those they had, and drops those of others, as one change: when a
// template that many objects are based on is edited, nodes are evaluated once and not once for each object, and never with
// the new template in one object and the old one in another.
func (r *Registry) Replace(put []*rules.RuleSet, remove []string) {
	r.update(func() bool {
		changed := false
		for _, set := range put {
			old := r.sets[set.Name]
			r.sets[set.Name] = set
			changed = changed || old == nil || old.Hash() != set.Hash()
		}
		for _, name := range remove {
			_, ok := r.sets[name]
			delete(r.sets, name)
			changed = changed || ok
		}
		return changed
	})
}

// PutBuiltIn replaces all rules that are built in.
func (r *Registry) PutBuiltIn(sets []*rules.RuleSet) {
	r.update(func() bool {
		r.builtIn = sets
		return true
	})
}

// Ready says that every object that exists by now has been put. From now on there is a program.
func (r *Registry) Ready() {
	r.update(func() bool {
		if r.linked != nil {
			return false
		}
		r.linked = &Linked{Cache: rules.NewCache()}
		return true
	})
}

// Program returns the current program, or nil while the registry is not ready.
func (r *Registry) Program() *Linked {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.linked == nil {
		return nil
	}
	if r.linked.Program == nil {
		r.link()
	}
	return r.linked
}

// Sets returns the compiled objects by name, built-in ones included.
func (r *Registry) Sets() []*rules.RuleSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all()
}

func (r *Registry) all() []*rules.RuleSet {
	out := make([]*rules.RuleSet, 0, len(r.sets)+len(r.builtIn))
	out = append(out, r.builtIn...)
	for _, s := range r.sets {
		out = append(out, s)
	}
	return out
}

// link is called with the lock held. Link sorts, so the order of the map does not matter.
func (r *Registry) link() {
	next := *r.linked
	next.Program = rules.Link(r.opt, r.all()...)
	r.linked = &next
}

// update changes the sets; the program is linked when it is next asked for, so that a start with 500 objects links once.
func (r *Registry) update(change func() bool) {
	r.mu.Lock()
	changed := change()
	if changed && r.linked != nil {
		r.linked = &Linked{Cache: r.linked.Cache, Generation: r.linked.Generation + 1}
	}
	notify := r.changed
	if r.linked == nil {
		notify = nil
	}
	r.mu.Unlock()
	if changed && notify != nil {
		notify()
	}
}

// Settle is how long changes of rules are gathered before nodes are evaluated again: applying a directory of rules is one
// pass over the nodes, not one for each file.
const Settle = 50 * time.Millisecond

// Touch has all nodes looked at again, as if the rules had changed.
func (r *Registry) Touch() {
	r.mu.Lock()
	notify := r.changed
	r.mu.Unlock()
	if notify != nil {
		notify()
	}
}
