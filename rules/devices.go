package rules

import (
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// followDevices marks the rules that depend on devices of DRA drivers: they read them, or outputs of a rule that does. It ignores the order of
// the rules, because the value of a label can be an output of a later rule.
func (p *Program) followDevices() {
	var found doubt
	for again := true; again; {
		again = false
		for _, r := range p.rules {
			if !r.readsDevices && (slices.ContainsFunc(r.reads, facts.IsDevices) || found.affects(r)) {
				r.readsDevices, again = true, true
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
