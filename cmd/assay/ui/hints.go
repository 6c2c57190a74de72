package ui

import (
	"fmt"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/suggest"
)

// maxTypos is the number of letters from which on two names are different names and not a misspelling.
const maxTypos = 3

// maxHints is the maximum number of suggestions for one filter.
const maxHints = 3

// knownNames are the names that a filter can use.
type knownNames struct {
	features map[string]map[string]bool // the elements of each feature
	labels   map[string]bool            // keys
}

// known returns the names of all nodes. Nodes share features with the same content, which are read once.
func (d *data) known() *knownNames {
	d.namesOnce.Do(func() {
		k := &knownNames{map[string]map[string]bool{}, map[string]bool{}}
		seen := map[facts.FeatureID]bool{}
		for i := range d.Nodes {
			for key := range d.Nodes[i].labels() {
				k.labels[key] = true
			}
			f := d.Nodes[i].Input.Facts
			for _, name := range f.Names() {
				if k.features[name] == nil {
					k.features[name] = map[string]bool{}
				}
				feature := f.Feature(name)
				if id := feature.ID(); id == (facts.FeatureID{}) || !seen[id] {
					seen[id] = true
					for _, list := range [][]string{feature.Flags.Names(), feature.Attributes.Names(), feature.Instances.Names()} {
						for _, element := range list {
							k.features[name][element] = true
						}
					}
				}
			}
		}
		d.names = k
	})
	return d.names
}

// hasFeature reports whether a node has a feature, or rules or the cluster can give it.
func (d *data) hasFeature(name string) bool {
	if strings.HasPrefix(name, "rule.") || facts.FromCluster(name) {
		return true
	}
	if slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.Input.Facts.Feature(name) != nil }) {
		return true
	}
	return slices.ContainsFunc(d.Program.Sets(), func(s *rules.RuleSet) bool { return slices.Contains(s.Derives(), name) })
}

// hasLabel reports whether a Node has a label.
func (d *data) hasLabel(key string) bool {
	return slices.ContainsFunc(d.Nodes, func(n Node) bool { _, ok := n.labels()[key]; return ok })
}

func (d *data) ruleNames() []string {
	var out []string
	for _, r := range d.Rules {
		out = append(out, r.Object.Name)
	}
	return out
}

// didYouMean returns a question with the closest of the known names, or "".
func didYouMean(name string, known []string) string {
	if near := suggest.NearestFold(name, known, maxTypos); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// hint suggests another filter.
type hint struct {
	// Says what is unknown, Instead what may be meant, and Filter is the filter with it.
	Says, Instead, Filter string
}

// hints returns suggestions for names and values in a filter that no node has.
func (c *clause) hints(d *data, text string) []hint {
	var out []hint
	for _, t := range c.terms() {
		if says, instead, at := t.unknown(d); instead != "" && len(out) < maxHints {
			out = append(out, hint{says, instead, text[:at.from] + quoteWord(instead) + text[at.to:]})
		}
	}
	return out
}

// unknown returns the first name or value of a term that no node has, what may be meant instead, and the place of the word.
func (t *term) unknown(d *data) (says, instead string, at word) {
	switch k := d.known(); {
	case t.compiled == nil && !t.searchedIn || t.name.text == "":
		return "", "", word{}
	case t.searchedIn:
		return t.unknownName(d, k)
	case t.label:
		return t.unknownLabel(d, k)
	default:
		return t.unknownFeature(d, k)
	}
}

// positive reports whether the term selects nodes that have something: in others, unknown names are common.
func (t *term) positive() bool {
	return t.op != nfdv1alpha1.MatchDoesNotExist && t.op != nfdv1alpha1.MatchNotIn
}

// nearest returns the closest known name. For a term that selects nodes without the name, only one that differs in case counts.
func (t *term) nearest(name string, known map[string]bool) string {
	limit := maxTypos
	if !t.positive() {
		limit = 1
	}
	return suggest.NearestFold(name, facts.SortedKeys(known), limit)
}

func (t *term) unknownName(d *data, k *knownNames) (says, instead string, at word) {
	if slices.ContainsFunc(t.matching(d), func(selected bool) bool { return selected }) {
		return "", "", word{}
	}
	says = "no name or label of a node contains " + t.name.text
	names := map[string]bool{}
	for i := range d.Nodes {
		names[d.Nodes[i].Input.Node.Name] = true
	}
	if near := t.nearest(t.name.text, names); near != "" {
		return says, near, t.name
	}
	feature, element, ok := column.Split(t.name.text)
	if near := t.nearest(feature, setOf(k.features)); near != "" && strings.Contains(feature, ".") {
		if ok {
			near += "." + element
		}
		return says, near, t.name
	}
	return says, t.nearest(t.name.text, k.labels), t.name
}

func (t *term) matching(d *data) []bool { return (&clause{term: t}).selects(d) }

func (t *term) unknownLabel(d *data, k *knownNames) (says, instead string, at word) {
	key := t.name.text
	if !k.labels[key] {
		return "no node has the label " + key, t.nearest(key, k.labels), t.name
	}
	return t.unknownValue("the label "+key, func(yield func(string)) {
		for i := range d.Nodes {
			if value, ok := d.Nodes[i].labels()[key]; ok {
				yield(value)
			}
		}
	})
}

func (t *term) unknownFeature(d *data, k *knownNames) (says, instead string, at word) {
	feature, element, ok := column.Split(t.name.text)
	if !d.hasFeature(feature) {
		near := t.nearest(feature, setOf(k.features))
		if near != "" && ok {
			near += "." + element
		}
		if near == "" {
			near = t.nearest(t.name.text, k.labels)
		}
		return "no node has the feature " + feature, near, t.name
	}
	elements := k.features[feature]
	if !ok || elements == nil {
		return "", "", word{}
	}
	if !elements[element] {
		near := t.nearest(element, elements)
		if near != "" {
			near = feature + "." + near
		}
		return fmt.Sprintf("no node has %s.%s", feature, element), near, t.name
	}
	if d.Known.Rules.Mask.Hides(element) {
		return "", "", word{}
	}
	return t.unknownValue(t.name.text, func(yield func(string)) {
		seen := map[facts.FeatureID]bool{}
		for i := range d.Nodes {
			f := d.Nodes[i].Input.Facts.Feature(feature)
			if f == nil || seen[f.ID()] && f.ID() != (facts.FeatureID{}) {
				continue
			}
			seen[f.ID()] = true
			if v, ok := f.Attributes.Get(element); ok {
				yield(v)
			}
			for n := range f.Instances.Len() {
				if v, ok := f.Instances.Get(n, element); ok {
					yield(v)
				}
			}
		}
	})
}

// unknownValue checks the values of a term with = or In.
func (t *term) unknownValue(of string, all func(yield func(string))) (says, instead string, at word) {
	if t.op != nfdv1alpha1.MatchIn {
		return "", "", word{}
	}
	known := map[string]bool{}
	all(func(value string) { known[value] = true })
	for _, w := range t.values {
		if !known[w.text] {
			if near := t.nearest(w.text, known); near != "" {
				return fmt.Sprintf("no node has the value %s of %s", w.text, of), near, w
			}
		}
	}
	return "", "", word{}
}

func setOf[V any](of map[string]V) map[string]bool {
	out := make(map[string]bool, len(of))
	for name := range of {
		out[name] = true
	}
	return out
}
