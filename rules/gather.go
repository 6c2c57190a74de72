package rules

import (
	"cmp"
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Gather builds the input of rules for a node. All programs that evaluate rules use it, so that they evaluate the same input. It is
// immutable and safe for concurrent use. The zero value has the default settings.
type Gather struct {
	// Namespace is Assay's own namespace. Features published there are merged first, so that those from other namespaces win.
	Namespace string
	// Keys adds the default namespace to labels without one.
	Keys *keys.Policy
	// Interner shares facts between nodes; nil shares none.
	Interner *facts.Interner
}

// Published is the content of one NodeFeature. Features without a NodeFeature have no name and no node.
type Published struct {
	// the node that it describes
	Node            string
	Namespace, Name string
	Facts           *facts.Facts
	// Labels are the labels that the NodeFeature requests directly.
	Labels map[string]string
	// FeatureSets are the names of feature sets whose features are not among the facts yet.
	FeatureSets []string
}

// Compare compares NodeFeatures by merge order, in which the last one wins: Assay's own namespace first, then by name, then by
// namespace, as in NFD.
func (g Gather) Compare(namespace, name, otherNamespace, otherName string) int {
	if own := namespace == g.Namespace; own != (otherNamespace == g.Namespace) {
		if own {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(name, otherName), cmp.Compare(namespace, otherNamespace))
}

// Input merges the published features of a node, given in any order; features without a name stay first. Known, which may be nil,
// are facts without a publisher: they win over published features of the same name, and rules with featureSources do not read them.
func (g Gather) Input(node Node, known *facts.Facts, list []Published) Input {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Published) int { return g.Compare(a.Namespace, a.Name, b.Namespace, b.Name) })
	in := Input{Node: node}
	policy := g.Keys
	if policy == nil {
		policy = &keys.Policy{}
	}
	all := make([]*facts.Facts, 0, len(list)+1)
	for _, p := range list {
		all = append(all, p.Facts)
		in.Publishers = append(in.Publishers, Publisher{Name: p.Namespace + "/" + p.Name, Facts: p.Facts})
		for key, value := range policy.QualifyAll(p.Labels) {
			if in.Labels == nil {
				in.Labels = make(map[string]string, len(p.Labels))
			}
			in.Labels[key] = value
		}
	}
	if known != nil {
		all = append(all, known)
	}
	in.Facts = facts.Merge(g.Interner, all...)
	return in
}
