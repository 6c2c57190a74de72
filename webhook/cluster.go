package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/warning"
)

// previewTimeout is the maximum time of a review for warnings about nodes, and at most half of what is left of its time: a response without
// them is better than a late one.
const previewTimeout = 500 * time.Millisecond

// Cluster provides the state of the nodes. Its methods are safe for concurrent use; ok is false while the state is unknown.
type Cluster interface {
	// Preview evaluates rules on the current nodes.
	Preview(ctx context.Context, set *rules.RuleSet) (p Preview, ok bool)
}

// Preview is the effect that rules would have now.
type Preview struct {
	// Nodes is the number of nodes that the rules were evaluated on, All the number of all nodes.
	Nodes, All int
	// Matched is the number of nodes that each rule matches, by its index in spec.rules of the compiled object.
	Matched map[int]int
}

// nodes returns a phrase for the nodes that the rules were evaluated on.
func (p Preview) nodes() string {
	if p.Nodes < p.All {
		return fmt.Sprintf("%d nodes (of %d)", p.Nodes, p.All)
	}
	return clip.Count(p.Nodes, "node")
}

// aboutNodes warns about rules that are valid but not useful in this cluster.
func (o *Options) aboutNodes(ctx context.Context, v *verdict, object *nfdv1alpha1.NodeFeatureRule) {
	if !v.Complete || v.Set.Len() == 0 {
		return
	}
	limit := previewTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, ok := o.Cluster.Preview(ctx, v.Set)
	if !ok || p.Nodes == 0 {
		return
	}
	v.aboutMatches(p, object)
}

// warned reports whether there is a warning for a field.
func (v *verdict) warned(path string) bool {
	return slices.ContainsFunc(v.Warnings, func(w warning.Warning) bool { return w.Path == path })
}

// aboutMatches warns about rules of the object itself that match all nodes or none. The rules of its bases are reviewed with the
// bases.
func (v *verdict) aboutMatches(p Preview, object *nfdv1alpha1.NodeFeatureRule) {
	var none []string
	for i := range object.Spec.Rules {
		rule := &object.Spec.Rules[i]
		n := p.Matched[v.Place(i)]
		path := fmt.Sprintf("spec.rules[%d].taints", i)
		if n == p.Nodes && p.All > 1 && taints(rule) && !v.warned(path) { // a taint that is not written has no effect
			v.Warn(path, warning.Dangerous, "would taint all %s now", p.nodes())
		}
		if n == 0 {
			none = append(none, fmt.Sprintf("%q", rule.Name))
		}
	}
	switch {
	case len(none) == 0:
	case len(none) == len(object.Spec.Rules):
		v.Warn("spec.rules", warning.Unlikely, "matches 0 of %s now", p.nodes())
	default:
		v.Warn("spec.rules", warning.Unlikely, "match 0 of %s now: %s", p.nodes(), strings.Join(none, ", "))
	}
}

// taints reports whether the rule keeps pods away from its nodes.
func taints(rule *nfdv1alpha1.Rule) bool {
	for _, t := range rule.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			return true
		}
	}
	return false
}
