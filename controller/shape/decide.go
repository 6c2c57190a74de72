package shape

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// window is the number of nodes that are compared, the most recent ones. It is also the number of nodes that have to agree before an
// output that differed is trusted again.
const window = 20

// output identifies an output of rules on a node. The name of a taint is KEY:EFFECT.
type output struct {
	kind keys.Kind
	name string
}

func (o output) String() string { return string(o.kind) + " " + o.name }

func compareOutputs(a, b output) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

// member is a node of a shape.
type member struct {
	name    string
	uid     types.UID
	created time.Time
	ready   bool              // all rules are applied
	given   map[output]string // what rules gave it, of the most recent nodes that are ready
}

// given returns outputs as a map.
func given(d plan.Desired) map[output]string {
	out := make(map[output]string, len(d.Labels)+len(d.Taints)+len(d.ExtendedResources))
	for name, value := range d.Labels {
		out[output{keys.Label, name}] = value
	}
	for name, amount := range d.ExtendedResources {
		out[output{keys.Resource, name}] = amount
	}
	for _, t := range d.Taints {
		out[output{keys.Taint, keys.TaintName(t)}] = t.Value
	}
	return out
}

// promised returns the outputs in a status.
func promised(s assayv1alpha1.NodeShapeStatus) map[output]string {
	d := plan.Desired{Labels: s.Labels, Taints: s.Taints, ExtendedResources: map[string]string{}}
	for name, amount := range s.ExtendedResources {
		d.ExtendedResources[string(name)] = amount.String()
	}
	return given(d)
}

// decision is the state of one decision.
type decision struct {
	old    assayv1alpha1.NodeShapeStatus
	recent []member // the nodes that are compared, the most recent first
	joined []member // those of them that were not compared before
	stayed []member // the others
	left   bool     // a node that was compared before was deleted
	hidden bool     // a node that was compared before is not ready
	common map[output]string
	mixed  map[output]bool // what only some have, or with different values
	trust  map[output]string
}

// decide returns the status of a shape for the nodes that exist, sorted by recentFirst, and a message for each output that a new node
// contradicts.
//
// An output is in the status if all recent nodes have it with the same value. Nodes that were deleted count too: as long as an output
// differed among the last nodes, it is listed in differences, until as many other nodes have joined. Nodes that change after they have
// joined show that rules have changed: that does not count as a difference.
func decide(old assayv1alpha1.NodeShapeStatus, nodes []member, now metav1.Time) (assayv1alpha1.NodeShapeStatus, []string) {
	d := compare(old, nodes)
	s := *old.DeepCopy()
	s.Nodes = ptr.To(int32(len(nodes))) //nolint:gosec // a cluster has fewer nodes
	s.Recent = d.uids(nodes)
	s.OnlyNode = only(old, nodes)
	if s.FirstSeen == nil {
		s.FirstSeen = &now
	}
	list, contradictions := d.differences()
	if len(d.recent) == 0 {
		d.common = d.trust
	}
	for o := range list {
		delete(d.common, o)
	}
	d.report(&s, list)
	if len(d.recent) == 0 {
		s.Omitted = old.Omitted
	}
	contradicted(&s, now)
	if gone := ptr.Deref(old.Nodes, 0) > 0 && len(nodes) == 0; old.LastSeen == nil || gone ||
		len(nodes) > 0 && !equality.Semantic.DeepEqual(old, s) {
		s.LastSeen = &now
	}
	return s, contradictions
}

// only returns the UID of the only node that a shape has ever had; empty if there were several.
func only(old assayv1alpha1.NodeShapeStatus, nodes []member) types.UID {
	before := old.OnlyNode
	if old.FirstSeen != nil && before == "" {
		return ""
	}
	for _, m := range nodes {
		if before != "" && before != m.uid {
			return ""
		}
		before = m.uid
	}
	return before
}
