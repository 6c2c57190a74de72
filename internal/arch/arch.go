// Package arch holds the arrows between packages: which may import which, and why.
//
// A careless import is invisible in a diff and expensive to take back. One typed clientset under rules would add 132
// packages of client-go to everything that evaluates a rule.
package arch

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of Assay's own module.
const Module = "github.com/assay-project/assay"

// Arrow forbids imports. Patterns are import paths; one that ends in "/..." stands for the package and all below it, as for
// the go command, and one that begins with "./" is of Assay itself.
type Arrow struct {
	// From are the packages that the arrow is about, Except those of them it is not about.
	From, Except []string
	// Forbidden must not be imported, unless it is Allowed as well.
	Forbidden, Allowed []string
	// Deep forbids it through other packages too.
	Deep bool
	// Reason says what would be lost. It is part of the message.
	Reason string
}

// Graph maps a package to the packages that it imports.
type Graph map[string][]string

// Violations returns a message for every import that an arrow forbids, with the way it takes, sorted.
func (g Graph) Violations(arrows []Arrow) []string {
	var messages []string
	for _, arrow := range arrows {
		for from := range g {
			if !matchAny(from, arrow.From) || matchAny(from, arrow.Except) {
				continue
			}
			for _, way := range g.ways(from, arrow) {
				messages = append(messages, fmt.Sprintf("%s\n    must not be: %s", strings.Join(way, "\n    imports "), arrow.Reason))
			}
		}
	}
	slices.Sort(messages)
	return slices.Compact(messages)
}

// ways returns, for every forbidden package that from imports, the shortest way there.
func (g Graph) ways(from string, arrow Arrow) [][]string {
	var found [][]string
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		last := way[len(way)-1]
		if len(way) > 1 && matchAny(last, arrow.Forbidden) && !matchAny(last, arrow.Allowed) {
			found = append(found, way)
			continue // what it imports in turn is its own affair
		}
		if len(way) > 1 && !arrow.Deep {
			continue
		}
		for _, next := range g[last] {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, append(slices.Clip(way), next))
			}
		}
	}
	return found
}

func matchAny(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return match(path, pattern) })
}

// match says whether a pattern stands for a package.
func match(path, pattern string) bool {
	if own, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = Module + "/" + own
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}
