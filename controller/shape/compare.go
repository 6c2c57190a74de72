package shape

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// recentFirst sorts nodes: those that are ready first, the most recent of them first.
func recentFirst(nodes []member) {
	slices.SortFunc(nodes, func(a, b member) int {
		if a.ready != b.ready {
			if a.ready {
				return -1
			}
			return 1
		}
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.uid, b.uid))
	})
}

// compare finds out what the most recent nodes have in common, and which of them are new. The nodes are sorted by recentFirst.
func compare(old assayv1alpha1.NodeShapeStatus, nodes []member) *decision {
	d := &decision{old: old, common: map[output]string{}, mixed: map[output]bool{}, trust: promised(old)}
	exists := make(map[types.UID]bool, len(nodes)) // true: and is ready
	for i, m := range nodes {
		exists[m.uid] = m.ready
		if i < window && m.ready {
			d.recent = nodes[:i+1]
		}
	}
	for _, uid := range old.Recent {
		ready, is := exists[uid]
		d.left, d.hidden = d.left || !is, d.hidden || is && !ready
	}
	for i, m := range d.recent {
		if slices.Contains(old.Recent, m.uid) {
			d.stayed = append(d.stayed, m)
		} else {
			d.joined = append(d.joined, m)
		}
		if i == 0 {
			maps.Copy(d.common, m.given)
			continue
		}
		for o, value := range d.common {
			if got, ok := m.given[o]; !ok || got != value {
				d.mixed[o] = true
				delete(d.common, o)
			}
		}
		for o := range m.given {
			if _, ok := d.common[o]; !ok {
				d.mixed[o] = true
			}
		}
	}
	return d
}

// uids returns the nodes that the next decision compares with: the recent ones, and those that were and are not ready now.
func (d *decision) uids(nodes []member) []types.UID {
	var out []types.UID
	for _, m := range d.recent {
		out = append(out, m.uid)
	}
	for _, m := range nodes {
		if !m.ready && slices.Contains(d.old.Recent, m.uid) && len(out) < window {
			out = append(out, m.uid)
		}
	}
	slices.Sort(out)
	return out
}

// differences returns the outputs that recent nodes, deleted ones included, do not have in common.
func (d *decision) differences() (list map[output]*assayv1alpha1.ShapeDifference, contradictions []string) {
	list = map[output]*assayv1alpha1.ShapeDifference{}
	for _, x := range d.old.Differences {
		o := output{keys.Kind(x.Output), x.Name}
		if d.keeps(o, &x) {
			list[o] = &x
		}
	}
	for o := range d.mixed {
		if list[o] == nil {
			list[o] = &assayv1alpha1.ShapeDifference{Output: string(o.kind), Name: o.name}
		}
		list[o].Agreeing = nil
	}
	for _, o := range slices.SortedFunc(maps.Keys(d.trust), compareOutputs) {
		node := d.contradicts(o)
		if node == nil {
			continue
		}
		x := &assayv1alpha1.ShapeDifference{Output: string(o.kind), Name: o.name, ContradictedBy: node.name}
		if _, another := d.common[o]; another { // the nodes that had the promised value are deleted
			x.Agreeing = ptr.To(int32(len(d.joined))) //nolint:gosec // at most window
		}
		list[o] = x
		contradictions = append(contradictions, d.message(o, node))
	}
	return list, contradictions
}

// keeps reports whether an earlier difference still counts although no two recent nodes may differ any more, and updates it.
func (d *decision) keeps(o output, x *assayv1alpha1.ShapeDifference) bool {
	joined := int32(len(d.joined)) //nolint:gosec // at most window
	switch {
	case d.mixed[o]:
	case x.Agreeing != nil:
		*x.Agreeing += joined
	case d.left:
		x.Agreeing = &joined
	case !d.hidden:
		// The nodes that differed exist and agree now: rules have changed, unless they agree on what the contradicting node lacks.
		_, have := d.common[o]
		if have || x.ContradictedBy == "" || len(d.recent) == window {
			return false
		}
	}
	return x.Agreeing == nil || *x.Agreeing < window
}

// contradicts returns the first new node that lacks an output that the shape promises, nil if there is none. If the nodes that had it
// before lack it too, the rules have changed.
func (d *decision) contradicts(o output) *member {
	has := func(m member) bool { got, ok := m.given[o]; return ok && got == d.trust[o] }
	if len(d.stayed) > 0 && !slices.ContainsFunc(d.stayed, has) {
		return nil
	}
	for i := range d.joined {
		if !has(d.joined[i]) {
			return &d.joined[i]
		}
	}
	return nil
}

func (d *decision) message(o output, m *member) string {
	got, ok := m.given[o]
	if !ok {
		return fmt.Sprintf("Node %s does not have the %s, which all nodes of this shape before it had; the shape no longer has it.", m.name, o)
	}
	return fmt.Sprintf("Node %s has the %s with the value %q, and all nodes of this shape before it with %q; the shape no longer has it.",
		m.name, o, got, d.trust[o])
}
