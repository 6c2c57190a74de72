package node

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/registry"
	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Reconciler makes one Node what the rules want it to be.
type Reconciler struct {
	client   client.Client
	live     client.Reader // asks the API server, not the cache
	events   record.EventRecorder
	clock    clock.PassiveClock
	registry *registry.Registry
	tally    *registry.Tally
	sources  Sources
	keys     *keys.Policy
	policy   plan.Policy
	disable  Disable
	dryRun   bool
	grace    time.Duration
	breaker  *Breaker
	damper   *damper
	metrics  *metrics
	memory   *memory
}

// Disable leaves kinds of outputs out.
type Disable struct{ Labels, Annotations, ExtendedResources bool }

// retryHeld is when a node is looked at again whose cache is older than what was last written to it: long enough for the
// watch to deliver, which normally triggers the next pass by itself.
const retryHeld = time.Second

// Reconcile implements reconcile.Reconciler: get, gather, decide, apply, report.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	linked := r.registry.Program()
	if linked == nil {
		return ctrl.Result{RequeueAfter: retryHeld}, nil // rules are still being compiled
	}
	var node corev1.Node
	if err := r.client.Get(ctx, req.NamespacedName, &node, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	known := r.memory.of(req.Name)
	if known.newerThan(&node) {
		return ctrl.Result{RequeueAfter: retryHeld}, nil
	}
	features, held, err := r.gather(ctx, &node, known)
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome := linked.Cache.Eval(linked.Program, r.input(&node, features), known.outcomeOf(&node))
	r.report(&node, known, outcome)
	p := r.plan(&node, outcome)
	p, again := r.guard(&node, p, known, linked.Generation, held)
	known.outcome, known.generation = outcome, linked.Generation
	if p.Empty() || r.dryRun {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if err := r.apply(ctx, &node, p, known); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// plan turns an outcome into changes. A node that a rule has failed keeps what it has.
func (r *Reconciler) plan(node *corev1.Node, o *rules.Outcome) *plan.Plan {
	want := plan.Desired{Taints: o.Taints()}
	if !r.disable.Labels {
		want.Labels = o.Labels()
	}
	if !r.disable.Annotations {
		want.Annotations = o.Annotations()
	}
	if !r.disable.ExtendedResources {
		want.ExtendedResources = o.ExtendedResources()
	}
	p := plan.Compute(plan.StateOf(node), want, r.policy)
	if o.Failed != nil {
		return p.Without(func(plan.Step) bool { return true })
	}
	return p
}

// report counts what the rules do, and passes on what they have to say.
func (r *Reconciler) report(node *corev1.Node, known *memo, o *rules.Outcome) {
	r.tally.Report(node.Name, o)
	if known.outcome == o {
		return
	}
	r.metrics.rejected(o)
	if o.Failed != nil && (known.outcome == nil || known.outcome.Failed == nil || *known.outcome.Failed != *o.Failed) {
		r.events.Eventf(node, corev1.EventTypeWarning, "NodeRejected", "%s: %s", o.Failed.Ref, o.Failed.Message)
	}
	said := map[rules.Event]bool{}
	if known.outcome != nil {
		for _, e := range known.outcome.Events() {
			said[e] = true
		}
	}
	for _, e := range o.Events() {
		if !said[e] {
			r.events.Event(node, e.Type, e.Reason, e.Message)
		}
	}
}

// apply writes the plan: one patch for everything but taints, one for taints.
func (r *Reconciler) apply(ctx context.Context, node *corev1.Node, p *plan.Plan, known *memo) error {
	version := node.ResourceVersion
	if body := p.Patch(); body != nil {
		out, err := r.patch(ctx, node.Name, body, "status")
		if blamed := blame(err, p); blamed != nil {
			// One key that the API server refuses must not take the others with it.
			r.events.Eventf(node, corev1.EventTypeWarning, "KeyRefused", "the API server refuses: %v", err)
			p = p.Without(blamed)
			known.refused = err.Error()
			if body = p.Patch(); body == nil {
				return nil
			}
			out, err = r.patch(ctx, node.Name, body, "status")
		}
		if err != nil {
			return r.failed(err)
		}
		version = out.ResourceVersion
		known.wrote(version)
	}
	if body := p.TaintPatch(version); body != nil {
		out, err := r.patch(ctx, node.Name, body)
		if err != nil {
			return r.failed(err)
		}
		known.wrote(out.ResourceVersion)
	}
	r.damper.changed(node.Name, taken(p))
	r.metrics.updates.Inc()
	logf.FromContext(ctx).V(1).Info("node written", "node", node.Name, "changes", len(p.Steps))
	return nil
}

func (r *Reconciler) patch(ctx context.Context, name string, body []byte, subresource ...string) (*corev1.Node, error) {
	node := &corev1.Node{}
	node.Name = name
	r.metrics.requests.Inc()
	patch := client.RawPatch("application/merge-patch+json", body)
	if len(subresource) > 0 {
		return node, r.client.Status().Patch(ctx, node, patch)
	}
	return node, r.client.Patch(ctx, node, patch)
}

// failed turns a conflict into another look, which the watch brings about: somebody else wrote first.
func (r *Reconciler) failed(err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return errConflict
	}
	r.metrics.failures.Inc()
	return err
}

func taken(p *plan.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		if s.Takes() {
			out = append(out, string(s.Kind)+" "+s.Key)
		}
	}
	return out
}

func (r *Reconciler) forget(name string) {
	r.memory.forget(name)
	r.tally.Forget(name)
	r.breaker.Withdraw(name)
	r.damper.forget(name)
}

// older compares resourceVersions of one object. They are numbers that grow (KEP-5504 makes that a promise); anything else
// counts as not older.
func older(a, b string) bool {
	na, errA := strconv.ParseUint(a, 10, 64)
	nb, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && na < nb
}

var _ = feed.NodeFeature{}
