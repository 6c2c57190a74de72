package rules

// Derives returns the features that the set's rules create on nodes, in lower case and in rule order. Only sets of the phases
// before main create features.
func (s *RuleSet) Derives() []string {
	var out []string
	for _, r := range s.rules {
		out = append(out, r.derives...)
	}
	return out
}

// Early reports whether the set is evaluated before main rules and can therefore change the features that they read.
func (s *RuleSet) Early() bool { return s.phase != phaseMain }

// ReadsOthers reports whether a rule of the set reads outputs of other rules.
func (s *RuleSet) ReadsOthers() bool {
	for _, r := range s.rules {
		if r.readsMatched {
			return true
		}
	}
	return false
}
