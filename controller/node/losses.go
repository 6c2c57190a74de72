package node

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Losses configure the taint of nodes that no longer have what their pods require.
type Losses struct {
	// Taint is the taint without its value.
	Taint corev1.Taint
	// Tracker knows the losses of all nodes; nil: no node is tainted.
	Tracker *loss.Tracker
}

// is reports whether a step changes the taint.
func (l Losses) is(s plan.Step) bool {
	return l.Tracker != nil && s.Kind == keys.Taint && s.Key == plan.TaintKey(l.Taint)
}

// on returns the taint that a node has and the controller owns, nil if there is none.
func (l Losses) on(node *corev1.Node, record plan.Record) *corev1.Taint {
	if l.Tracker == nil {
		return nil
	}
	if !slices.ContainsFunc(plan.ParseTaints(node.Annotations[record.Taints()]), func(t corev1.Taint) bool { return t.MatchTaint(&l.Taint) }) {
		return nil
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.MatchTaint(&l.Taint) {
			return &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		}
	}
	return nil
}

// want returns the taint that a node should have, nil for none, and the loss that is the reason, if it is known. A node is tainted
// because of a loss that has lasted for its grace, and keeps the taint while the loss lasts: the grace starts again when the controller
// restarts, and the taint of a node stays.
func (l Losses) want(node *corev1.Node, record plan.Record) (*corev1.Taint, *loss.Loss) {
	if l.Tracker == nil {
		return nil, nil
	}
	v, have := l.Tracker.Of(node.Name), l.on(node, record)
	if v.Unknown {
		return have, nil
	}
	if have != nil {
		if i := slices.IndexFunc(v.Lost, func(l loss.Loss) bool { return l.Value == have.Value }); i >= 0 {
			return have, &v.Lost[i]
		}
	}
	if len(v.Due) == 0 {
		return nil, nil
	}
	out := l.Taint
	out.Value = v.Due[0].Value
	return &out, &v.Due[0]
}

// lostNodes delivers the nodes whose losses have changed.
func (r *Reconciler) lostNodes() source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.losses.Tracker.OnChange(func(name string) {
			if name != "" {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
				return
			}
			for _, req := range r.allNodes(ctx) {
				q.Add(req)
			}
		})
		return nil
	})
}

// changedDevices delivers the nodes whose devices of DRA drivers have changed.
func (r *Reconciler) changedDevices() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.inputs.OnDevices(func(name string) { q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}) })
		return nil
	})
}

// lost reports whether a step changes the taint of lost features, and not one of a rule with the same key.
func (j *judge) lost(s plan.Step) bool {
	if !j.r.losses.is(s) || j.gave(s) {
		return false
	}
	_, byRule := j.outcome.Giver(s.Kind, s.Key)
	return !byRule
}

// confirmLoss checks with the API server that all NodeFeatures of a node are known before it is tainted for what they lack.
func (r *Reconciler) confirmLoss(ctx context.Context, p *plan.Plan, j *judge) error {
	if !slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Op == plan.Add && j.lost(s) }) {
		return nil
	}
	return r.inputs.Confirm(ctx, j.state)
}

// reportLoss emits Events about the taint after a plan was written.
func (r *Reconciler) reportLoss(p *plan.Plan, j *judge) {
	for _, s := range p.Steps {
		if !j.lost(s) {
			continue
		}
		t := r.losses.Taint
		switch s.Op {
		case plan.Add, plan.Change:
			t.Value = s.New
			why := "its features are lost"
			if _, l := r.losses.want(j.node, r.policy.Record); l != nil {
				why = fmt.Sprintf("the node has lacked %s for %s, which %s requires for pod %s", l.Lacks, l.Grace, l.Object, l.Pod)
			}
			r.events.Eventf(j.node, corev1.EventTypeWarning, "LossTaintAdded", "Added the taint %s: %s", plan.FormatTaint(t), why)
		case plan.Remove:
			t.Value = s.Old
			r.events.Eventf(j.node, corev1.EventTypeNormal, "LossTaintRemoved",
				"Removed the taint %s: no pod on the node requires a feature that it has lost", plan.FormatTaint(t))
		}
	}
}
