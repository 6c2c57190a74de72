package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// errConflict is returned when another client has changed the Node in the meantime.
var errConflict = errors.New("the node has changed; retrying")

// apply writes the plan: one patch for taints, one for everything else. A key that the API server rejects must not block the
// others, so it is skipped and not retried for a while.
func (r *Reconciler) apply(ctx context.Context, node *corev1.Node, p *plan.Plan, known *memo) error {
	version, wrote := node.ResourceVersion, false
	if body := p.Patch(); body != nil {
		out, err := r.patch(ctx, node.Name, body, "status")
		if blamed := blame(err, p); blamed != nil {
			r.noteRefused(ctx, node, p, blamed, known, err)
			p, out, err = p.Without(blamed), nil, nil
			if body = p.Patch(); body != nil {
				out, err = r.patch(ctx, node.Name, body, "status")
			}
		}
		if err != nil {
			return r.failed(err)
		}
		if out != nil {
			version, wrote = out.ResourceVersion, true
			known.written = version
		}
	}
	if body := p.TaintPatch(version); body != nil {
		out, err := r.patch(ctx, node.Name, body)
		if err != nil {
			return r.failed(err)
		}
		if r.beginsEviction(p, node) {
			r.gate.Wrote(node.Name)
		}
		known.written, wrote = out.ResourceVersion, true
	}
	if wrote {
		r.changes.Add(node.Name, changes(p))
		r.metrics.updates.Inc()
		logf.FromContext(ctx).V(1).Info("Wrote node", "node", node.Name, "changes", len(p.Steps))
	}
	return nil
}

func (r *Reconciler) patch(ctx context.Context, name string, body []byte, subresource ...string) (*corev1.Node, error) {
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
		return errConflict
	}
	r.metrics.failures.Inc()
	return err
}

// blame returns the steps of a plan that the API server rejects, or nil if the error has another reason. The API server and its
// policies usually name the key. If they name none, extended resources are the most likely cause, since the API server validates
// nothing else that was not already validated. If it was another key, the resources are written in the next pass.
func blame(err error, p *plan.Plan) func(plan.Step) bool {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return nil
	}
	named, resources := map[string]bool{}, false
	text := err.Error()
	for _, s := range p.Steps {
		resources = resources || s.Kind == keys.Resource
		if strings.Contains(text, s.Key) {
			named[s.Key] = true
		}
	}
	switch {
	case len(named) > 0:
		return func(s plan.Step) bool { return named[s.Key] }
	case resources:
		return func(s plan.Step) bool { return s.Kind == keys.Resource }
	}
	return nil
}

// noteRefused records values that the API server rejects.
func (r *Reconciler) noteRefused(ctx context.Context, node *corev1.Node, p *plan.Plan, blamed func(plan.Step) bool, known *memo, err error) {
	r.metrics.failures.Inc()
	now := r.clock.Now()
	var refused []string
	for _, s := range p.Steps {
		if blamed(s) {
			known.refuse(s, now)
			refused = append(refused, name(s))
		}
	}
	r.emitHeld(ctx, node, hold.Refused, fmt.Sprintf("the API server rejects it: %v", err), now.Add(refusalMemory), refused)
}

// changes returns the keys of a plan that change on the Node.
func changes(p *plan.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		if !s.Mark && s.Op != plan.Adopt && s.Op != plan.Forget {
			out = append(out, name(s))
		}
	}
	return out
}

// name returns a key with its kind.
func name(s plan.Step) string { return string(s.Kind) + " " + s.Key }
