package node

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/plan"
)

// write writes a plan and which objects gave its keys: those that the plan adds are recorded before the Node is written, those that it has
// afterwards.
func (r *Reconciler) write(ctx context.Context, p *pass, d *decide.Decision) error {
	logRemovals(ctx, p.Node.Name, d)
	err := r.owners.book.Record(ctx, p.Node.Name, d.Owners)
	if err == nil {
		err = r.apply(ctx, p, d)
	}
	if err == nil {
		r.emit(p.Node, d.Written...)
		r.emit(p.Node, lostEvents(p, d)...)
		if d.FailsOpen {
			r.metrics.failedOpen.Inc()
		}
	}
	p.known.Finish(d, decide.Done{
		At: r.clock.Now(), Err: err, Outcome: p.outcome, Edition: p.active.Edition, Publishers: p.state.Input.Publishers,
	})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // Invalid is the reason of an admission policy that states none
		p.forbid(d.Plan, err)
	}
	if err != nil {
		return err
	}
	return r.owners.book.Passed(ctx, p.Node.Name, provenance.Pass{
		Generation: p.active.Generation, Given: p.known.Given, Held: p.known.HeldKeys(),
	})
}

// forbid notes that the API server does not let the controller write what rules give the Node.
func (p *pass) forbid(wanted *plan.Plan, err error) {
	for _, s := range wanted.Steps {
		if origin, _ := p.outcome.Origin(s.Kind, s.Key); origin.Object != "" {
			p.forbidden = append(p.forbidden, rulestats.Complaint{
				Object: origin.Object, Message: fmt.Sprintf("rule %q: %s %q: %v", origin.Rule, s.Kind, s.Key, err), Forbidden: true,
			})
		}
	}
}

// logRemovals logs the keys that a plan removes or changes, and why. Changes of features are logged at level 1: some features change often, and
// the Event FeaturesLost names what a node has lost.
func logRemovals(ctx context.Context, node string, d *decide.Decision) {
	for _, cause := range []record.Cause{record.Rules, record.Facts, record.Unknown} {
		if list := d.Removals[cause]; len(list) > 0 {
			log := logf.FromContext(ctx)
			if cause == record.Facts {
				log = log.V(1)
			}
			log.Info("Removing or changing keys", "node", node, "cause", cause.String(), "keys", hold.Some(list))
		}
	}
}

// apply writes the plan: one patch for taints, one for everything else.
func (r *Reconciler) apply(ctx context.Context, pass *pass, d *decide.Decision) error {
	node, known := pass.Node, pass.known
	version, wrote := node.ResourceVersion, false
	p, out, err := r.applyPart(ctx, pass, d, d.Plan, false, version)
	if err != nil {
		return r.failed(err)
	}
	if out != nil {
		version, wrote = out.ResourceVersion, true
		known.Written = version
	}
	if p, out, err = r.applyPart(ctx, pass, d, p, true, version); err != nil {
		return r.failed(err)
	}
	if out != nil {
		if d.BeginsEviction && slices.ContainsFunc(p.Steps, r.settings.Evicts) {
			r.limits.gate.Wrote(node.Name)
		}
		known.Written, wrote = out.ResourceVersion, true
	}
	if wrote {
		r.limits.changes.Add(node.Name, changes(p, known.Fixing))
		r.metrics.updates.Inc()
		logf.FromContext(ctx).V(1).Info("Wrote node", "node", node.Name, "changes", len(p.Steps))
	}
	return nil
}

// applyPart writes the taints of a plan, or everything else, and returns the plan without what the API server rejects: a key that it rejects
// must not block the others, so it is left out and not retried for a while. The Node is nil if there is nothing to write.
func (r *Reconciler) applyPart(ctx context.Context, pass *pass, d *decide.Decision, p *plan.Plan, taints bool, version string) (
	*plan.Plan, *corev1.Node, error,
) {
	write := func(p *plan.Plan) (*corev1.Node, error) {
		if taints {
			return r.patch(ctx, pass.Node.Name, p.TaintPatch(version))
		}
		return r.patch(ctx, pass.Node.Name, p.Patch(), "status")
	}
	out, err := write(p)
	blamed := blame(err, p, taints)
	if blamed == nil {
		return p, out, err
	}
	rest, refusal := p.Without(blamed), err
	if out, err = write(rest); err != nil && err.Error() == refusal.Error() {
		return p, out, err // the API server rejects the rest for the same reason: they are not the cause
	}
	r.noteRefused(d, p, blamed, pass.known, refusal)
	d.Allowed = d.Allowed.Without(blamed) // the Node does not have them after this pass
	return rest, out, err
}

// patch patches a Node. It returns nil if there is nothing to write.
func (r *Reconciler) patch(ctx context.Context, name string, body []byte, subresource ...string) (*corev1.Node, error) {
	if body == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	node.Name = name
	r.metrics.requests.Inc()
	if len(subresource) > 0 {
		return node, r.client.Status().Patch(ctx, node, client.RawPatch(plan.PatchType, body))
	}
	return node, r.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body))
}

// failed converts a conflict error into a retry.
func (r *Reconciler) failed(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return decide.ErrConflict
	}
	r.metrics.failures.Inc()
	return err
}

// noteRefused records values that the API server rejects.
func (r *Reconciler) noteRefused(d *decide.Decision, p *plan.Plan, blamed func(plan.Step) bool, known *memo, err error) {
	r.metrics.failures.Inc()
	now := r.clock.Now()
	for _, s := range p.Steps {
		if blamed(s) {
			d.Refuse(&known.Memory, s, now, err.Error())
		}
	}
}

// changes returns the keys of a plan that get another value because rules give another one. What is corrected because another client has
// changed it does not flap.
func changes(p *plan.Plan, corrected map[string]string) []string {
	var out []string
	for _, s := range p.Steps {
		key := hold.Key(s.Kind, s.Key)
		if _, ok := corrected[key]; !ok && !s.Mark && s.Op != plan.Adopt && s.Op != plan.Forget {
			out = append(out, key)
		}
	}
	return out
}
