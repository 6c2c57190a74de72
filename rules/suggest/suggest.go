// Package suggest finds the known name that is closest to a misspelled one.
package suggest

import "strings"

// maxLength is the maximum length of a name that is compared. Longer input is not a typo, and the cost of a comparison is quadratic
// in the length.
const maxLength = 128

// typical is the length up to which names are compared without allocating memory.
const typical = 31

// Distance returns the number of letters that must be changed, added, removed or swapped with the next one to get from a to b, or
// limit if it is at least limit.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > maxLength || len(b) > maxLength {
		return limit
	}
	var few [3 * (typical + 1)]int // on the stack
	rows, n := few[:], len(b)+1
	if len(b) > typical {
		rows = make([]int, 3*n)
	}
	before, last, row := rows[:n], rows[n:2*n], rows[2*n:3*n]
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

// Nearest returns the known name with the smallest distance to name, if it is below limit, and "" otherwise. Of several, it returns
// the first.
func Nearest(name string, known []string, limit int) string {
	best := ""
	for _, k := range known {
		if d := Distance(name, k, limit); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// NearestFold is like Nearest but ignores case.
func NearestFold(name string, known []string, limit int) string {
	best := ""
	lower := strings.ToLower(name)
	for _, k := range known {
		if d := Distance(lower, strings.ToLower(k), limit); d < limit {
			best, limit = k, d
		}
	}
	return best
}
