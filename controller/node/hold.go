package node

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules/plan"
)

// DefaultGrace is how long what a worker has published goes on counting after its object has vanished without its Node: time
// to reinstall a DaemonSet, and to notice that one has deleted a namespace.
const DefaultGrace = 10 * time.Minute

// gather returns the NodeFeatures that count for a node. If the worker's own one has vanished, the last one seen goes on
// counting for a while; held says how long still. A process that never saw one holds removals instead (see guard).
func (r *Reconciler) gather(ctx context.Context, node *corev1.Node, known *memo) (list []*feed.NodeFeature, held time.Duration, err error) {
	list, err = r.list(ctx, node.Name)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range list {
		if r.sources.own(f) {
			known.own, known.lostAt, known.stranger = f, time.Time{}, false
			return list, 0, nil
		}
	}
	if r.grace == 0 {
		return list, 0, nil
	}
	if known.lostAt.IsZero() {
		if here, err := r.stillThere(ctx, node.Name); err != nil || here {
			return nil, 0, orStale(err) // the cache is behind, or nobody knows
		}
		known.lostAt = r.clock.Now()
	}
	held = r.grace - r.clock.Since(known.lostAt)
	if held <= 0 {
		known.own, known.stranger = nil, false
		return list, 0, nil
	}
	if known.own == nil {
		return list, held, nil
	}
	// In its place of the order: the manager's own namespace is merged first.
	at := slices.IndexFunc(list, func(f *feed.NodeFeature) bool {
		return f.Namespace != r.sources.Namespace || f.Name > known.own.Name
	})
	if at < 0 {
		at = len(list)
	}
	return slices.Insert(list, at, known.own), held, nil
}

// stillThere asks the API server itself for the worker's object.
func (r *Reconciler) stillThere(ctx context.Context, node string) (bool, error) {
	var f feed.NodeFeature
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.sources.Namespace, Name: node}, &f)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && f.NodeName() == node, err
}

func orStale(err error) error {
	if err != nil {
		return err
	}
	return errStale
}

// guard takes out of a plan what must not happen yet, and says when to look again.
//
// Without evidence nothing is removed: a node whose worker has published nothing since this process started keeps what it
// has until the grace period is over. Removals that no change of rules explains are subject to the budget. Keys that flap
// are left alone until they are quiet.
func (r *Reconciler) guard(node *corev1.Node, p *plan.Plan, known *memo, generation int64, held time.Duration) (*plan.Plan, time.Duration) {
	again := held
	if held > 0 && known.own == nil && known.stranger {
		p = p.Without(known.unproven(p))
	}
	explained := known.outcome != nil && known.generation != generation
	if !p.Removes() {
		r.breaker.Withdraw(node.Name)
	} else if known.outcome != nil && !explained {
		ok, wait := r.breaker.Allow(node.Name, r.memory.len())
		if !ok {
			p = p.Without(plan.Step.Takes)
			r.metrics.held.Inc()
			again = sooner(again, wait)
		}
	}
	return p.Without(func(s plan.Step) bool {
		if !s.Takes() && s.Op != plan.Add {
			return false
		}
		wait, flaps := r.damper.held(node.Name, string(s.Kind)+" "+s.Key)
		if flaps {
			again = sooner(again, wait)
		}
		return flaps
	}), again
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// unproven chooses the steps that would take away what the node had when this process first saw it. Who gave it is not
// known, so neither is whether it should go. What changes afterwards is known, and goes at once.
func (m *memo) unproven(p *plan.Plan) func(plan.Step) bool {
	if m.outcome == nil {
		m.kept = map[string]bool{}
		for _, s := range p.Steps {
			if s.Takes() {
				m.kept[string(s.Kind)+" "+s.Key] = true
			}
		}
	}
	return func(s plan.Step) bool { return s.Takes() && m.kept[string(s.Kind)+" "+s.Key] }
}
