package expr

// maxEdits is how many letters a name may be off to be suggested: two typing mistakes.
const maxEdits = 2

// suggest returns a hint that names the closest of the known names, or nothing if none is close.
func suggest(name string, known []string) string {
	best, least := "", min(maxEdits, len(name)/2)+1
	for _, k := range known {
		if d := edits(name, k, least); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// edits returns how many letters have to be changed, added, left out or swapped with their neighbour to get from a to b,
// or limit if there are as many or more.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > maxQuote {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
