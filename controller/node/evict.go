package node

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// eviction delays taints that evict pods, and those of lost features, according to the configured pace. Everything else is written.
func (r *Reconciler) eviction(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	node, known := j.node, j.known
	if r.dryRun || !r.beginsEviction(p, node) {
		known.waits = ""
		return p, 0
	}
	ok, held := r.gate.Allow(node.Name, node.Labels[corev1.LabelTopologyZone], func() budget.Fleet { return r.evicted(ctx) })
	if ok {
		known.waits = ""
		return p, held.Wait
	}
	if known.waits == "" {
		r.events.Eventf(node, corev1.EventTypeWarning, "EvictionHeld", "a taint that evicts pods has to wait: %s", held.Why)
	}
	known.waits = held.Why
	return p.Without(r.evicts), held.Wait
}

// beginsEviction reports whether a plan adds such a taint to a node that has none.
func (r *Reconciler) beginsEviction(p *plan.Plan, node *corev1.Node) bool {
	return slices.ContainsFunc(p.Steps, r.evicts) && !r.bears(node)
}

// evicts reports whether a step adds a taint that evicts running pods, or that of lost features: with another effect it closes nodes,
// and something else moves their pods.
func (r *Reconciler) evicts(s plan.Step) bool {
	return s.Kind == keys.Taint && s.Op == plan.Add && (r.losses.is(s) || strings.HasSuffix(s.Key, ":"+string(corev1.TaintEffectNoExecute)))
}

// bears reports whether a node has a taint that the controller manages and that is added at the pace.
func (r *Reconciler) bears(node *corev1.Node) bool {
	if r.losses.on(node, r.policy.Record) != nil {
		return true
	}
	ours := plan.ParseTaints(node.Annotations[r.policy.Record.Taints()])
	return slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool {
		return have.Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(ours, func(t corev1.Taint) bool { return have.MatchTaint(&t) })
	})
}

// evicted returns the nodes with such taints.
func (r *Reconciler) evicted(ctx context.Context) budget.Fleet {
	names, err := nodecache.Names(ctx, r.cache)
	if err != nil {
		return budget.Fleet{} // only before the cache has started
	}
	fleet := budget.Fleet{Nodes: len(names), Zones: map[string]string{}}
	for _, name := range names { // one after another: see nodecache
		if node := nodecache.Get(ctx, r.client, name); node != nil && r.bears(node) {
			fleet.Zones[name] = node.Labels[corev1.LabelTopologyZone]
		}
	}
	return fleet
}
