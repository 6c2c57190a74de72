package assembly

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// Rules are the active rules of one object.
type Rules struct {
	// Set is the compiled form of Spec, without rules with errors.
	Set  *rules.RuleSet
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
}

// Registry holds the active rules and links them to a program. It is safe for concurrent use.
type Registry struct {
	opt rules.Options

	mu      sync.Mutex
	objects map[string]Rules
	builtIn []Rules
	linked  *Linked
	ready   chan struct{} // closed once there is a program
	changed []func()
}

// Linked is the program at one point in time.
type Linked struct {
	Program *rules.Program
	// Generation is incremented with each change of the rules.
	Generation int64
}

// NewRegistry returns an empty registry for rules that are compiled with these options. Until Ready is called, Program returns nil,
// so that a partial set of rules after a restart does not remove the outputs of the other rules.
func NewRegistry(opt rules.Options) *Registry {
	return &Registry{opt: opt, objects: map[string]Rules{}, ready: make(chan struct{})}
}

// Options returns the options for compiling rules.
func (r *Registry) Options() rules.Options { return r.opt }

// OnChange registers a function that is called without a lock whenever the program has changed.
func (r *Registry) OnChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
}

// Replace replaces the rules of several objects and removes those of others in one change. When a template that many objects are
// based on is edited, nodes are evaluated once, not once per object, and never with the new template in one object and the old one
// in another. Replacing rules by the same rules has no effect.
func (r *Registry) Replace(put []Rules, remove []string) {
	r.update(func() bool {
		changed := false
		for _, next := range put {
			old := r.objects[next.Set.Name].Set
			r.objects[next.Set.Name] = next
			changed = changed || old == nil || old.ID() != next.Set.ID() || old.Hash() != next.Set.Hash()
		}
		for _, name := range remove {
			_, ok := r.objects[name]
			delete(r.objects, name)
			changed = changed || ok
		}
		return changed
	})
}

// PutBuiltIn replaces all built-in rules.
func (r *Registry) PutBuiltIn(list []Rules) {
	r.update(func() bool {
		r.builtIn = list
		return true
	})
}

// Ready marks the initial rules as complete. From now on there is a program.
func (r *Registry) Ready() {
	r.update(func() bool {
		if r.linked != nil {
			return false
		}
		r.linked = &Linked{}
		close(r.ready)
		return true
	})
}

// Wait waits until there is a program. It returns an error if the context ends first.
func (r *Registry) Wait(ctx context.Context) error {
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped before the rules were compiled: %w", context.Cause(ctx))
	}
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

// All returns the active rules: the built-in rules, then the others by name.
func (r *Registry) All() []Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.builtIn)
	for _, name := range slices.Sorted(maps.Keys(r.objects)) {
		out = append(out, r.objects[name])
	}
	return out
}

// link creates the program. The caller must hold the lock. Link sorts, so the order of the map does not matter.
func (r *Registry) link() {
	sets := make([]*rules.RuleSet, 0, len(r.objects)+len(r.builtIn))
	for _, o := range r.builtIn {
		sets = append(sets, o.Set)
	}
	for _, o := range r.objects {
		sets = append(sets, o.Set)
	}
	next := *r.linked
	next.Program = rules.Link(r.opt, sets...)
	r.linked = &next
}

// update changes the rules. The program is linked on the next use, so that a start with 500 objects links once.
func (r *Registry) update(change func() bool) {
	r.mu.Lock()
	changed := change()
	if changed && r.linked != nil {
		r.linked = &Linked{Generation: r.linked.Generation + 1}
	}
	ready := r.linked != nil
	r.mu.Unlock()
	if changed && ready {
		r.Touch()
	}
}

// Settle is the time for which changes of rules are collected before nodes are evaluated again, so that applying a directory of
// rules causes one pass over the nodes.
const Settle = 50 * time.Millisecond

// Touch causes all nodes to be evaluated again, as if the rules had changed.
func (r *Registry) Touch() {
	r.mu.Lock()
	notify := r.changed
	r.mu.Unlock()
	for _, f := range notify {
		f()
	}
}
