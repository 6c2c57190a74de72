package discovery

import (
	"slices"
	"strings"
)

// Selection selects the sources that publish features and those that publish labels. Other sources are not run.
type Selection struct {
	Features, Labels Choice
}

// Everything selects all sources except Supplemental ones.
var Everything = Selection{Features: Choice{all: true}, Labels: Choice{all: true}}

// Choice is a set of sources. The zero value is empty.
type Choice struct {
	all     bool
	with    []string
	without []string
}

// Choose parses a list such as featureSources or labelSources in the worker's configuration: names of sources, "all", and "-name"
// to exclude one. Entries apply in order, so later entries override earlier ones. Supplemental sources are only selected by name.
// Choose returns the sorted unknown names.
func Choose(list []string, sources []Source) (Choice, []string) {
	var c Choice
	var unknown []string
	for _, item := range list {
		item = strings.TrimSpace(item)
		name, minus := strings.CutPrefix(item, "-")
		switch {
		case name == "all" && minus:
			c = Choice{}
		case name == "all":
			c.all, c.without = true, nil
		case !slices.ContainsFunc(sources, func(s Source) bool { return s.Name() == name }):
			unknown = append(unknown, item)
		case minus:
			c.without = append(c.without, name)
			c.with = slices.DeleteFunc(c.with, func(n string) bool { return n == name })
		default:
			c.with = append(c.with, name)
			c.without = slices.DeleteFunc(c.without, func(n string) bool { return n == name })
		}
	}
	slices.Sort(unknown)
	return c, slices.Compact(unknown)
}

// Has reports whether a source is selected.
func (c Choice) Has(s Source) bool {
	switch name := s.Name(); {
	case slices.Contains(c.with, name):
		return true
	case slices.Contains(c.without, name):
		return false
	}
	_, supplemental := s.(Supplemental)
	return c.all && !supplemental
}
