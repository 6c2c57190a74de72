package node

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/rules/plan"
)

// guard takes out of a plan what must not happen yet, and says when to look again.
//
// Without evidence nothing is removed: a node whose worker has published nothing since this process started keeps what it
// has until the grace period is over. Removals that no change of the rules that gave the keys explains are subject to the budget.
// Keys that flap are left alone until they are quiet, and so are values that the API server refused, and keys that another client
// changes back. Taints that evict pods go at their own pace.
func (r *Reconciler) guard(ctx context.Context, node *corev1.Node, p *plan.Plan, j *judge, held time.Duration) (*plan.Plan, time.Duration) {
	again, known := held, j.known
	if j.blind {
		unproven := r.unproven(known, p)
		p = p.Without(func(s plan.Step) bool { return unproven(s) && !j.explained(s) })
	}
	p = r.budget(ctx, node, p, j, &again)
	p = r.damp(node, p, j, &again)
	now := r.clock.Now()
	p = p.Without(func(s plan.Step) bool {
		wait, refused := known.refuses(s, now)
		if refused {
			again = sooner(again, wait)
		}
		return refused
	})
	p, wait := r.evict(ctx, node, p, known)
	if wait.Wait > 0 {
		again = sooner(again, wait.Wait)
	}
	return r.settle(node, p, known, &again), again
}

// budget holds removals back once they come in masses.
func (r *Reconciler) budget(ctx context.Context, node *corev1.Node, p *plan.Plan, j *judge, again *time.Duration) *plan.Plan {
	var takes []plan.Step
	unknown := false
	for _, s := range p.Steps {
		if !s.Takes() || r.switchedOff(s) {
			continue
		}
		if cause := j.why(s); cause != provenance.Rules {
			takes = append(takes, s)
			unknown = unknown || cause == provenance.Unknown
		}
	}
	if len(takes) == 0 {
		r.breaker.Withdraw(node.Name)
		return p
	}
	why := "too many nodes lose labels or resources at once"
	var (
		ok   bool
		wait time.Duration
	)
	if unknown {
		why = "it is not known which rule gave them"
		ok, wait = r.breaker.Insist(node.Name)
	} else {
		ok, wait = r.breaker.Allow(node.Name, r.countNodes(ctx))
	}
	if ok {
		return p
	}
	r.metrics.held.Inc()
	if wait == r.breaker.Hold() { // the first time
		text := j.explain(takes)
		r.events.Eventf(node, corev1.EventTypeWarning, "RemovalHeld", "held for %s unless confirmed: %s: %s", wait, why, text)
		logf.FromContext(ctx).Info("Holding removals", "node", node.Name, "for", wait, "reason", why, "keys", text)
	}
	*again = sooner(*again, wait)
	return p.Without(func(s plan.Step) bool {
		return slices.ContainsFunc(takes, func(held plan.Step) bool { return name(held) == name(s) })
	})
}

// damp leaves keys alone that flap, unless it is the rules that change them.
func (r *Reconciler) damp(node *corev1.Node, p *plan.Plan, j *judge, again *time.Duration) *plan.Plan {
	return p.Without(func(s plan.Step) bool {
		if s.Mark || s.Op == plan.Adopt || s.Op == plan.Forget {
			return false
		}
		wait, flaps := r.damper.held(node.Name, name(s))
		if !flaps || j.explained(s) {
			return false
		}
		*again = sooner(*again, wait)
		return true
	})
}

// countNodes counts the Nodes of the cluster, for the share of them that may lose something.
func (r *Reconciler) countNodes(ctx context.Context) int {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return 0
	}
	return len(list.Items)
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// unproven chooses the steps that would take away what the node had when this process first saw it. Who gave it is not
// known, so neither is whether it should go. What changes afterwards is known, and goes at once.
func (r *Reconciler) unproven(known *memo, p *plan.Plan) func(plan.Step) bool {
	if known.kept == nil {
		known.kept = map[string]bool{}
		for _, s := range p.Steps {
			if s.Takes() && !r.switchedOff(s) {
				known.kept[name(s)] = true
			}
		}
	}
	return func(s plan.Step) bool { return s.Takes() && known.kept[name(s)] }
}

// switchedOff reports whether a step removes what the configuration says not to write at all: that needs no other evidence.
func (r *Reconciler) switchedOff(s plan.Step) bool {
	switch s.Kind {
	case plan.Label:
		return r.disable.Labels
	case plan.Annotation:
		return r.disable.Annotations
	case plan.Resource:
		return r.disable.ExtendedResources
	}
	return !r.policy.Taints
}
