// Package arch defines which packages may import which, and why.
//
// An unwanted import is easy to miss in a diff and expensive to remove later: one typed clientset below rules would add 132
// packages of client-go to every program that evaluates rules.
package arch

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/assay-project/assay"

// Arrow forbids imports. Patterns are import paths; a pattern that ends in "/..." matches the package and all packages below it, as
// in the go command, and a pattern that begins with "./" is relative to this module.
type Arrow struct {
	// From are the packages to which the arrow applies, except for those in Except.
	From, Except []string
	// Forbidden packages must not be imported, unless they are also in Allowed.
	Forbidden, Allowed []string
	// Deep also forbids indirect imports.
	Deep bool
	// Reason is the reason for the arrow. It is part of the message.
	Reason string
}

// Graph maps a package to its imports.
type Graph map[string][]string

// Violations returns a sorted list with a message for each forbidden import, with the import path that leads to it.
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

// ways returns, for each forbidden package that from imports, the shortest import path to it.
func (g Graph) ways(from string, arrow Arrow) [][]string {
	var found [][]string
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		last := way[len(way)-1]
		if len(way) > 1 && matchAny(last, arrow.Forbidden) && !matchAny(last, arrow.Allowed) {
			found = append(found, way)
			continue // imports of a forbidden package are not reported
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

// match reports whether a pattern matches a package.
func match(path, pattern string) bool {
	if own, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = Module + "/" + own
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}
