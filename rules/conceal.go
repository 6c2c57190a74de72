package rules

// Place is a path up to the first key that its author chose: of a sensitive rule, the rest could repeat what it is sensitive
// about.
func Place(path string) string {
	for i := range len(path) - 1 {
		if path[i] == '[' && (path[i+1] < '0' || path[i+1] > '9') {
			return path[:i]
		}
	}
	return path
}

// withheldKey stands for a key that a sensitive rule asks for and does not get. Keys that it does get are public anyway.
const withheldKey = "(withheld)"

// conceal is a rejection as it may be shown.
func (s *RuleSet) conceal(r Rejection) Rejection {
	if !s.sensitive {
		return r
	}
	r.Key = withheldKey
	if !r.Missing {
		r.Reason = "no rule may write it"
	}
	return r
}

// concealed are rejections as they may be shown. The list itself is shared, and stays as it is.
func (s *RuleSet) concealed(list []Rejection) []Rejection {
	if !s.sensitive || len(list) == 0 {
		return list
	}
	out := make([]Rejection, len(list))
	for i := range list {
		out[i] = s.conceal(list[i])
	}
	return out
}
