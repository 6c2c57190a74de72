package rules

import (
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// follow marks the rules that depend on some features: they read them, or outputs of a rule that does. It ignores the order of the rules,
// because the value of a label can be an output of a later rule.
func (p *Program) follow(is func(feature string) bool, mark func(*rule) *bool) {
	var found doubt
	for again := true; again; {
		again = false
		for _, r := range p.rules {
			if depends := mark(r); !*depends && (slices.ContainsFunc(r.reads, is) || found.affects(r)) {
				*depends, again = true, true
				found.add(r)
			}
		}
	}
}

// ReadsDevices reports whether a key may depend on devices of DRA drivers: a rule that may write it reads them, or outputs of a rule that does.
// Only the rules of objects for which of is true count.
func (p *Program) ReadsDevices(kind keys.Kind, key string, of func(*RuleSet) bool) bool {
	return slices.ContainsFunc(p.rules, func(r *rule) bool {
		return r.readsDevices && (r.names(kind, key) || r.open(kind)) && of(r.set)
	})
}

// ReadsHealth reports whether an output of an object may depend on the health of a node, as ReadsDevices does for devices. Features are those
// about health that such rules read themselves, sorted.
func (p *Program) ReadsHealth(kind keys.Kind, key string, of func(*RuleSet) bool) (features []string, reads bool) {
	for _, r := range p.rules {
		if !r.readsHealth || !r.names(kind, key) && !r.open(kind) || !of(r.set) {
			continue
		}
		reads = true
		for _, name := range r.reads {
			if facts.IsHealth(name) {
				features = append(features, name)
			}
		}
	}
	slices.Sort(features)
	return slices.Compact(features), reads
}
