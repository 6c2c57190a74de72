package webhook

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lint"
)

// previewTimeout bounds what a review spends on warnings about nodes: an answer without them beats one that is late.
const previewTimeout = 500 * time.Millisecond

// Cluster knows what the nodes of the cluster are. Its methods are safe for concurrent use; ok is false while it cannot tell.
type Cluster interface {
	// Preview evaluates the object on the nodes of the cluster as they are now.
	Preview(ctx context.Context, rule *nfdv1alpha1.NodeFeatureRule) (p Preview, ok bool)
	// Published reports whether any node has ever published the feature.
	Published(feature string) (published, ok bool)
}

// Preview is what an object would do now.
type Preview struct {
	// Nodes is how many nodes there are.
	Nodes int
	// Matched is how many of them each rule matches, in the order of spec.rules.
	Matched []int
}

// aboutNodes warns of rules that fit the language but not this cluster.
func (o *Options) aboutNodes(ctx context.Context, v *verdict, object *nfdv1alpha1.NodeFeatureRule) {
	for _, ref := range lint.Features(&object.Spec) {
		if published, ok := o.Cluster.Published(ref.Feature); ok && !published && lint.Known(ref.Feature) {
			v.warn(ref.Path, lint.RankUnlikely, "no node of this cluster has ever published %s", ref.Feature)
		} else if ok && !published {
			v.warn(ref.Path, lint.RankSuspicious, "no node of this cluster has ever published %s", ref.Feature)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, previewTimeout)
	defer cancel()
	p, ok := o.Cluster.Preview(ctx, object)
	if !ok || p.Nodes == 0 {
		return
	}
	var none []string
	for i, n := range p.Matched {
		if i >= len(object.Spec.Rules) {
			break
		}
		rule := &object.Spec.Rules[i]
		if n == p.Nodes && p.Nodes > 1 && taints(rule) {
			v.warn(fmt.Sprintf("spec.rules[%d].taints", i), lint.RankDangerous, "would taint all %d nodes now", n)
		}
		if n == 0 {
			none = append(none, fmt.Sprintf("%q", rule.Name))
		}
	}
	switch {
	case len(none) == 0:
	case len(none) == len(object.Spec.Rules):
		v.warn("spec.rules", lint.RankUnlikely, "matches 0 of %d nodes now", p.Nodes)
	default:
		v.warn("spec.rules", lint.RankUnlikely, "match 0 of %d nodes now: %s", p.Nodes, strings.Join(none, ", "))
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
