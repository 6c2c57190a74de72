package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

type featuresFlags struct {
	worldFlags
	output string
	values int

	noHeaders bool
}

func newFeatures() *cobra.Command {
	f := &featuresFlags{}
	cmd := &cobra.Command{
		Use:   "features [PATTERN]",
		Short: "Show which features the nodes have, on how many of them, with which values",
		Long: `Show which features the nodes have, on how many of them, with which values: what a rule can be written about.

Without a PATTERN it lists the features; with one, such as cpu.model.* or pci.device.vendor, their elements too.`,
		Example: `  assay features
  assay features 'cpu.model.*'
  assay features pci.device.class`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd)
	cmd.ValidArgsFunction = completeFeatures(&f.Flags)
	cmd.Flags().IntVar(&f.values, "values", 8, "maximum number of values of each element, the most frequent first; -o wide shows all")
	headersFlag(cmd, &f.noHeaders)
	outputFlag(cmd, &f.output, "table", "wide", "name", "json", "yaml")
	return cmd
}

// tally counts on how many nodes something is.
type tally struct {
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	Nodes  int            `json:"nodes"`
	Values map[string]int `json:"values,omitempty"` // value -> nodes
}

func (f *featuresFlags) run(cmd *cobra.Command, args []string) error {
	w, err := f.load(cmd.Context(), want{features: true})
	if err != nil {
		return err
	}
	c := &census{all: map[string]*tally{}, mask: w.opt.Mask}
	if len(args) > 0 {
		c.pattern = strings.ToLower(args[0])
	}
	names := sortedKeys(w.published)
	for _, node := range names {
		c.node(w.input(node).Facts)
	}
	list := make([]*tally, 0, len(c.all))
	for _, name := range sortedKeys(c.all) {
		list = append(list, c.all[name])
	}
	if len(list) == 0 {
		if c.pattern == "" {
			return foundError{fmt.Errorf("no features are published; is the worker running?")}
		}
		return foundError{fmt.Errorf("none of %s has a feature %s; assay features lists all", plural(len(names), "node"), args[0])}
	}
	switch f.output {
	case "name":
		for _, t := range list {
			fmt.Fprintln(cmd.OutOrStdout(), t.Name)
		}
		return nil
	case "wide":
		f.values = -1
	case "table":
	default:
		return printObject(cmd.OutOrStdout(), f.output, list)
	}
	rows := &table{}
	rows.add("FEATURE", "TYPE", "NODES", "VALUES")
	for _, t := range list {
		rows.add(t.Name, t.Type, fmt.Sprintf("%d of %d", t.Nodes, len(names)), f.histogram(t))
	}
	return rows.list(cmd.OutOrStdout(), f.noHeaders)
}

// histogram is the most frequent values with the number of their nodes.
func (f *featuresFlags) histogram(t *tally) string {
	values := sortedKeys(t.Values)
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(t.Values[b], t.Values[a]) })
	var out []string
	for i, v := range values {
		if i == f.values {
			out = append(out, fmt.Sprintf("… %d more", len(values)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s (%d)", dash(v), t.Values[v]))
	}
	return strings.Join(out, ", ")
}

// census counts the features of a fleet.
type census struct {
	pattern string
	all     map[string]*tally
	mask    rules.Masking
}

// wants reports whether a name is asked for. Without a pattern features are, and their elements are not.
func (c *census) wants(name string, element bool) bool {
	if c.pattern == "" {
		return !element
	}
	name = strings.ToLower(name)
	ok, _ := path.Match(c.pattern, name)
	return ok || element && strings.HasPrefix(name, c.pattern+".")
}

func (c *census) node(f *facts.Facts) {
	for _, name := range f.Names() {
		feature := f.Feature(name)
		switch {
		case feature.Instances.Len() > 0:
			c.add(name, "instances", fmt.Sprint(feature.Instances.Len()), false)
			c.instances(name, feature.Instances)
		case feature.Attributes.Len() > 0:
			c.add(name, "attributes", "", false)
		case feature.Flags.Len() > 0:
			c.add(name, "flags", "", false)
		}
		for _, key := range feature.Attributes.Names() {
			value, _ := feature.Attributes.Get(key)
			c.add(name+"."+key, "attribute", c.shown(key, value), true)
		}
		for _, flag := range feature.Flags.Names() {
			c.add(name+"."+flag, "flag", "", true)
		}
	}
}

func (c *census) shown(key, value string) string {
	if c.mask.Hides(key) {
		return rules.Hidden
	}
	return value
}

func (c *census) instances(name string, list *facts.Instances) {
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
		t := c.tally(full, "attribute of instances")
		t.Nodes++
		for v := range seen {
			t.Values[v]++
		}
	}
}

func (c *census) tally(name, kind string) *tally {
	t := c.all[name]
	if t == nil {
		t = &tally{Name: name, Type: kind, Values: map[string]int{}}
		c.all[name] = t
	}
	return t
}

func (c *census) add(name, kind, value string, element bool) {
	if !c.wants(name, element) {
		return
	}
	t := c.tally(name, kind)
	t.Nodes++
	if value != "" {
		t.Values[value]++
	}
}
