package node

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/rules/plan"
)

// errConflict is returned when another client wrote the Node first.
var errConflict = errors.New("the node has changed meanwhile; trying again")

// apply writes the plan: one patch for everything but taints, one for taints. A key that the API server refuses must not
// take the others with it, so it is left out, and not tried again for a while.
func (r *Reconciler) apply(ctx context.Context, node *corev1.Node, p *plan.Plan, known *memo) error {
	version, wrote := node.ResourceVersion, false
	if body := p.Patch(); body != nil {
		out, err := r.patch(ctx, node.Name, body, "status")
		if blamed := blame(err, p); blamed != nil {
			r.noteRefused(node, p, blamed, known, err)
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
		known.written, wrote = out.ResourceVersion, true
	}
	if wrote {
		r.changes.Add(node.Name, changes(p))
		r.metrics.updates.Inc()
		logf.FromContext(ctx).V(1).Info("node written", "node", node.Name, "changes", len(p.Steps))
	}
	return nil
}

func (r *Reconciler) patch(ctx context.Context, name string, body []byte, subresource ...string) (*corev1.Node, error) {
	node := &corev1.Node{}
	node.Name = name
	r.metrics.requests.Inc()
	patch := client.RawPatch(types.MergePatchType, body)
	if len(subresource) > 0 {
		return node, r.client.Status().Patch(ctx, node, patch)
	}
	return node, r.client.Patch(ctx, node, patch)
}

// failed turns a conflict into another look: somebody else wrote first.
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

// blame says which steps of a plan the API server refuses, or nil if that is not what the error is about. The server and its
// policies name the key most of the time; where they name none, extended resources are the likeliest, since they are all
// that is checked beyond what was checked before writing. If it was another key after all, the resources are written with
// the next pass.
func blame(err error, p *plan.Plan) func(plan.Step) bool {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return nil
	}
	named, resources := map[string]bool{}, false
	text := err.Error()
	for _, s := range p.Steps {
		resources = resources || s.Kind == plan.Resource
		if strings.Contains(text, s.Key) {
			named[s.Key] = true
		}
	}
	switch {
	case len(named) > 0:
		return func(s plan.Step) bool { return named[s.Key] }
	case resources:
		return func(s plan.Step) bool { return s.Kind == plan.Resource }
	}
	return nil
}

// noteRefused remembers what the API server refuses.
func (r *Reconciler) noteRefused(node *corev1.Node, p *plan.Plan, blamed func(plan.Step) bool, known *memo, err error) {
	r.metrics.failures.Inc()
	r.events.Eventf(node, corev1.EventTypeWarning, "KeyRefused", "the API server refuses: %v", err)
	for _, s := range p.Steps {
		if blamed(s) {
			known.refuse(s, r.clock.Now())
		}
	}
}

// changes are the keys of a plan that the Node sees changing.
func changes(p *plan.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		if !s.Mark && s.Op != plan.Adopt && s.Op != plan.Forget {
			out = append(out, name(s))
		}
	}
	return out
}

// name tells keys of different kinds apart.
func name(s plan.Step) string { return string(s.Kind) + " " + s.Key }
