// Package rights lists the rights that the ServiceAccounts of an installation with default values need.
package rights

import (
	_ "embed"
	"strings"
)

// Right is one verb on a resource.
type Right struct {
	// Verb, Group, Resource and Name are those of a rule of RBAC. Resource may have a subresource, as in nodes/status; an empty Name means all
	// objects.
	Verb, Group, Resource, Name string
	// Own limits the right to the namespace of the installation.
	Own bool
	// Without is what does not work without the right.
	Without string
}

//go:embed rights.tsv
var table string

// The columns of the table.
const (
	component = iota
	scope
	group
	resources
	verbs
	names
	without
	columns
)

// Of returns the rights of a component, in the order of importance.
func Of(part string) (out []Right) {
	for line := range strings.Lines(table) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(row) != columns || row[component] != part {
			continue
		}
		for _, resource := range strings.Fields(row[resources]) {
			for _, name := range strings.Fields(row[names]) {
				for _, verb := range strings.Fields(row[verbs]) {
					out = append(out, Right{
						Verb: verb, Group: unlessDash(row[group]), Resource: resource, Name: unlessDash(name), Own: row[scope] == "own", Without: row[without],
					})
				}
			}
		}
	}
	return out
}

// unlessDash returns an empty string for the mark of one.
func unlessDash(text string) string {
	if text == "-" {
		return ""
	}
	return text
}
