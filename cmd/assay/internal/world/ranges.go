package world

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRange is the maximum number of names in a range: more than the number of nodes that Kubernetes supports.
const maxRange = 20_000

// splitOutside splits at commas outside of brackets.
func splitOutside(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range s {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out, start = append(out, s[start:i]), i+1
			}
		}
	}
	return append(out, s[start:])
}

// expandRange returns the names in a pattern such as n[1-20], rack[01-12] or n[1,3,7-9].
func expandRange(s string) ([]string, error) {
	open := strings.IndexByte(s, '[')
	if open < 0 {
		return []string{s}, nil
	}
	end := strings.IndexByte(s[open:], ']')
	if end < 0 {
		return nil, fmt.Errorf("%s: missing ]", s)
	}
	prefix, inside, rest := s[:open], s[open+1:open+end], s[open+end+1:]
	tails, err := expandRange(rest)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, item := range strings.Split(inside, ",") {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || last < first {
			return nil, fmt.Errorf("%s: invalid range %q: use for example 1-20", s, item)
		}
		for n := first; n <= last; n++ {
			for _, tail := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", prefix, len(from), n, tail))
			}
			if len(out) > maxRange {
				return nil, fmt.Errorf("%s expands to more than %d nodes", s, maxRange)
			}
		}
	}
	return out, nil
}
