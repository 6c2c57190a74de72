package rules

// Derives returns the features that the set's rules create on nodes, in lower case and in the order of the rules.
// Only sets of the phases before main have any.
func (s *RuleSet) Derives() []string {
	var out []string
	for _, r := range s.rules {
		out = append(out, r.derives...)
	}
	return out
}

// Early reports whether the set is evaluated before main rules, so that it may change the features that they read.
func (s *RuleSet) Early() bool { return s.phase != phaseMain }

// ReadsOthers reports whether a rule of the set reads outputs of rules, so that it cannot be evaluated without them.
func (s *RuleSet) ReadsOthers() bool {
	for _, r := range s.rules {
		if r.readsMatched {
			return true
		}
	}
	return false
}
