package rules

import (
	"cmp"
	"maps"
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Gather puts together what rules are given of a node. There is one, so that whoever evaluates rules, in the cluster or on a
// desk, gives them the same. It is immutable and safe for concurrent use; the zero value is that of an installation without
// settings.
type Gather struct {
	// Namespace is Assay's own: what is published there counts less than what others add elsewhere.
	Namespace string
	// Keys gives labels without a namespace theirs.
	Keys *keys.Policy
	// Interner shares facts between nodes; nil: nothing is shared.
	Interner *facts.Interner
}

// Published is what one NodeFeature says of a node. Bare features have no name, and no node.
type Published struct {
	// Node that is described.
	Node            string
	Namespace, Name string
	Facts           *facts.Facts
	// Labels are asked for without a rule.
	Labels map[string]string
}

// Compare orders what is published by namespace and name in the order of its merging, in which the last one wins: Assay's
// own namespace first, then by name, then by namespace, as NFD does it.
func (g Gather) Compare(namespace, name, otherNamespace, otherName string) int {
	if own := namespace == g.Namespace; own != (otherNamespace == g.Namespace) {
		if own {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(name, otherName), cmp.Compare(namespace, otherNamespace))
}

// Input merges what is published about a node, in any order; what has no name keeps its place before all others. Known is
// what is known of the node without anybody publishing it, or nil. It wins over what is published under the same name, and
// is nobody's: rules with featureSources do not see it.
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
		if len(p.Labels) > 0 && in.Labels == nil {
			in.Labels = make(map[string]string, len(p.Labels))
		}
		maps.Copy(in.Labels, policy.QualifyAll(p.Labels))
	}
	if known != nil {
		all = append(all, known)
	}
	in.Facts = facts.Merge(g.Interner, all...)
	return in
}
