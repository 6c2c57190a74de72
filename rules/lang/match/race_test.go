//go:build race

package match

// The race detector allocates memory itself.
func init() { underRace = true }
