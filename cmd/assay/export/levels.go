package export

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
)

// Levels makes the levels of a NodeBaseline those of Kueue's Topology, which gets the name of the baseline.
func (o *Options) Levels(b *assayv1alpha1.NodeBaseline) error {
	if len(b.Spec.Levels) == 0 {
		return fmt.Errorf("NodeBaseline %s has no levels: write spec.levels", b.Name)
	}
	o.TopologyName = b.Name
	if len(b.Spec.NodeSelector) > 0 {
		o.InTopology = labels.SelectorFromSet(b.Spec.NodeSelector)
	}
	for _, l := range b.Spec.Levels {
		o.Topology = append(o.Topology, l.Label)
	}
	return nil
}

// Incomplete are nodes of ResourceFlavors that lack labels of levels.
type Incomplete struct {
	Node   string
	Labels []string
}

// Error returns the error about nodes on which Kueue would place no pods; nil: there are none.
func (r *Result) Error() error {
	if len(r.Incomplete) == 0 {
		return nil
	}
	list := make([]string, len(r.Incomplete))
	for i, n := range r.Incomplete {
		list[i] = n.Node + " (" + strings.Join(n.Labels, ", ") + ")"
	}
	return fmt.Errorf("the ResourceFlavors select %s without all levels, and Kueue would place no pods by topology there: %s; "+
		"add the labels, or pass --incomplete to print the Topology with a comment for each", clip.Count(len(list), "node"), clip.Join(list, ", ", listed))
}

// listed is the maximum number of nodes in an error.
const listed = 5

// Comments returns a comment for each node that lacks labels of levels.
func (r *Result) Comments() string {
	var out strings.Builder
	for _, n := range r.Incomplete {
		fmt.Fprintf(&out, "# node %s lacks %s: Kueue places no pods by topology there\n", n.Node, strings.Join(n.Labels, ", "))
	}
	return out.String()
}

// outside removes the Topology from ResourceFlavors that select nodes of the fleet, but none for which the Topology is.
func (r *Result) outside(flavors []*resourceFlavor, opt Options) {
	for _, f := range flavors {
		some, in := false, false
		for i := range opt.Fleet {
			if n := labels.Set(opt.Fleet[i].Labels); labels.SelectorFromSet(f.Spec.NodeLabels).Matches(n) {
				some, in = true, in || opt.InTopology.Matches(n)
			}
		}
		if some && !in {
			f.Spec.TopologyName = ""
			r.note("ResourceFlavor %s has no Topology: NodeBaseline %s selects none of its nodes.", f.Metadata.Name, opt.TopologyName)
		}
	}
}

// incomplete returns the nodes that a ResourceFlavor with a Topology selects and that lack a label of a level.
func incomplete(nodes []corev1.Node, flavors []*resourceFlavor, levels []string) (out []Incomplete) {
	for i := range nodes {
		n := &nodes[i]
		var missing []string
		for _, level := range levels {
			if n.Labels[level] == "" {
				missing = append(missing, level)
			}
		}
		for _, f := range flavors {
			if len(missing) > 0 && f.Spec.TopologyName != "" && labels.SelectorFromSet(f.Spec.NodeLabels).Matches(labels.Set(n.Labels)) {
				out = append(out, Incomplete{n.Name, missing})
				break
			}
		}
	}
	return out
}
