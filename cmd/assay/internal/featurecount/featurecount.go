// Package featurecount counts the features and values of many nodes.
package featurecount

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// Count is the number of nodes with a feature or an element.
type Count struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Nodes  int            `json:"nodes"`
	Values map[string]int `json:"values,omitempty"` // value -> nodes
}

// Counter counts the features of many nodes. It reads equal features of several nodes once. It is not safe for concurrent use.
type Counter struct {
	pattern string
	mask    rules.Masking
	seen    map[identity]*group
	all     map[string]*Count
}

type identity struct {
	name string
	id   facts.FeatureID
}

// group is a set of nodes with equal content of one feature.
type group struct {
	feature *facts.Feature
	nodes   int
}

// New returns a Counter of the features and elements that match a pattern, such as cpu.model.*. If the pattern is empty, it counts
// features only.
func New(pattern string, mask rules.Masking) *Counter {
	return &Counter{pattern: strings.ToLower(pattern), mask: mask, seen: map[identity]*group{}, all: map[string]*Count{}}
}

// Add counts a node.
func (c *Counter) Add(f *facts.Facts) {
	for _, name := range f.Names() {
		feature := f.Feature(name)
		key := identity{name, feature.ID()}
		if c.seen[key] == nil {
			c.seen[key] = &group{feature: feature}
		}
		c.seen[key].nodes++
	}
}

// List returns the counts since the last call, sorted by name.
func (c *Counter) List() []*Count {
	for key, g := range c.seen {
		c.count(key.name, g.feature, g.nodes)
	}
	var out []*Count
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		out = append(out, c.all[name])
	}
	clear(c.seen)
	c.all = map[string]*Count{}
	return out
}

// wants reports whether a name is counted.
func (c *Counter) wants(name string, element bool) bool {
	if c.pattern == "" {
		return !element
	}
	domain := !strings.Contains(c.pattern, ".") && !strings.Contains(c.pattern, "*") // its features, without their elements
	return !(element && domain) && column.Match(c.pattern, name)
}

func (c *Counter) count(name string, feature *facts.Feature, nodes int) {
	switch {
	case feature.Instances.Len() > 0:
		c.add(name, "instances", fmt.Sprint(feature.Instances.Len()), false, nodes)
		c.instances(name, feature.Instances, nodes)
	case feature.Attributes.Len() > 0:
		c.add(name, "attributes", "", false, nodes)
	case feature.Flags.Len() > 0:
		c.add(name, "flags", "", false, nodes)
	}
	if c.pattern == "" {
		return
	}
	for _, key := range feature.Attributes.Names() {
		value, _ := feature.Attributes.Get(key)
		c.add(name+"."+key, "attribute", c.shown(key, value), true, nodes)
	}
	for _, flag := range feature.Flags.Names() {
		c.add(name+"."+flag, "flag", "", true, nodes)
	}
}

func (c *Counter) shown(key, value string) string {
	if c.mask.Hides(key) {
		return rules.Hidden
	}
	return value
}

func (c *Counter) instances(name string, list *facts.Instances, nodes int) {
	for _, key := range list.Names() {
		full := name + "." + key
		if !c.wants(full, true) {
			continue
		}
		seen := map[string]bool{}
		for i := range list.Len() {
			if v, ok := list.Get(i, key); ok {
				seen[c.shown(key, v)] = true
			}
		}
		t := c.of(full, "attribute of instances")
		t.Nodes += nodes
		for v := range seen {
			t.Values[v] += nodes
		}
	}
}

func (c *Counter) of(name, kind string) *Count {
	t := c.all[name]
	if t == nil {
		t = &Count{Name: name, Type: kind, Values: map[string]int{}}
		c.all[name] = t
	}
	return t
}

func (c *Counter) add(name, kind, value string, element bool, nodes int) {
	if !c.wants(name, element) {
		return
	}
	t := c.of(name, kind)
	t.Nodes += nodes
	if value != "" {
		t.Values[value] += nodes
	}
}
