//go:build race

package match

// The race detector's own allocations count as a test's.
func init() { underRace = true }
