package rules

import "slices"

// Place returns a path up to the first key that the author chose. The rest of the path of a sensitive rule could contain sensitive
// values.
func Place(path string) string {
	for i := range len(path) - 1 {
		if path[i] == '[' && (path[i+1] < '0' || path[i+1] > '9') {
			return path[:i]
		}
	}
	return path
}

// withheldKey replaces a rejected key of a sensitive rule. Keys that are written to a node are public anyway.
const withheldKey = "(withheld)"

// conceal returns a rejection without sensitive values.
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

// concealed returns rejections without sensitive values. It does not change the list, which is shared.
func (s *RuleSet) concealed(list []Rejection) []Rejection {
	if !s.sensitive {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		out[i] = s.conceal(out[i])
	}
	return out
}
