package registry

import "github.com/assay-project/assay/rules"

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
