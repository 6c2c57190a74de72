//go:build race

package rules_test

func init() { underRace = true }
