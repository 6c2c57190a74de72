package node

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Reconciler writes the outputs of the rules to one Node.
type Reconciler struct {
	client   client.Client
	cache    cache.Informers
	live     client.Reader // reads from the API server, not from the cache
	nudges   bool          // notify schedulers of changed features
	events   record.EventRecorder
	clock    clock.PassiveClock
	registry *assembly.Registry
	stats    *rulestats.Stats
	inputs   *inputs.Nodes
	policy   plan.Policy
	taint    *corev1.Taint // on failed nodes
	disable  Disable
	dryRun   bool
	ready    bool // the condition FeaturesReady is written
	startup  Startup
	losses   Losses
	requests bool // requests are materialized
	breaker  *budget.Breaker
	count    nodeCount
	gate     *budget.Gate
	changes  *flap.Changes
	watchdog *Watchdog
	metrics  *metrics
	memory   *memory

	book     *provenance.Book
	settings string                              // that outcomes depend on
	object   func(name string) *assembly.Object  // assembled state of an object; nil if there is none
	confirm  func(context.Context, string) error // reads an object that the cache lacks from the API server

	beginning sync.Mutex
	leads     sync.Once // set with the first pass
	forceMu   sync.Mutex
	force     *inForce // of the last program
}

// Disable excludes kinds of outputs.
type Disable struct{ Labels, Annotations, ExtendedResources bool }

// retryHeld is the delay before a node is reconciled again whose cached version is older than the last write: long enough for the
// watch to deliver the change, which normally triggers the next pass.
const retryHeld = time.Second

// Reconcile implements reconcile.Reconciler: get, gather, decide, apply, report.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.watchdog.begin(req.Name)()
	if r.registry.Program() == nil {
		return ctrl.Result{RequeueAfter: retryHeld}, nil // rules are still being compiled
	}
	if err := r.begin(ctx); err != nil {
		return ctrl.Result{}, err
	}
	linked := r.registry.Program()
	var node corev1.Node
	if err := r.client.Get(ctx, req.NamespacedName, &node, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	known := r.memory.of(&node)
	if known.newerThan(&node) {
		return ctrl.Result{RequeueAfter: retryHeld}, nil
	}
	if known.boots(&node) {
		r.changes.Forget(node.Name) // another boot may be of another machine: what changed before it must not hold what this one has
	}
	r.inputs.Need(linked.Program.Reads())
	state, err := r.inputs.Of(ctx, &node)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.reportLeftOut(ctx, &node, state.LeftOut)
	outcome := r.eval(linked.Program, state.Input)
	generation, due := r.nudge(&node, state.Features.All(), known)
	wish := r.plan(&node, outcome, generation)
	j := &judge{
		r: r, node: &node, known: known, state: state, now: r.inForce(linked), outcome: outcome, past: r.book.Past(),
		blind: state.Blind,
	}
	defer r.gate.Passed(node.Name)
	p, wait := r.guard(ctx, wish, j)
	again := sooner(sooner(sooner(state.Held, state.Devices.Held), wait), due)
	if !r.dryRun {
		wait, err = r.carryOut(ctx, linked.Program, wish, p, j)
		again = sooner(again, wait)
	}
	r.report(ctx, &node, known, outcome, wish)
	return ctrl.Result{RequeueAfter: again}, err
}

// carryOut writes a plan and its provenance: the keys that objects give are recorded before the Node is written, the keys that it
// has afterwards. It returns when to reconcile the node again; 0: not because of this.
func (r *Reconciler) carryOut(ctx context.Context, program *rules.Program, wish, p *plan.Plan, j *judge) (time.Duration, error) {
	node := j.node
	if err := r.prove(ctx, program, p, j); err != nil {
		return 0, err
	}
	causes := j.causes(p) // before the pass changes what the node remembers
	j.logRemovals(ctx, p, causes)
	err := r.book.Cover(ctx, node.Name, j.cover(p))
	unmet := r.unmet(j, p)
	all, late, again := r.open(node, r.withReady(j, wish, unmet.in(p), unmet.condition()))
	if err == nil {
		err = r.confirmLoss(ctx, all, j)
	}
	if err == nil {
		err = r.apply(ctx, node, all, j.known)
	}
	if err == nil {
		r.reportUnmet(node, unmet)
		r.reportLoss(all, j)
		r.reportLost(program, p, j, causes)
	}
	if late && err == nil {
		r.failedOpen(node)
	}
	j.known.passed(wish, p, r.clock.Now(), err)
	j.carry(wish, p, err)
	if err != nil {
		return 0, err
	}
	return again, r.book.Passed(ctx, node.Name, j.pass())
}

func (r *Reconciler) eval(program *rules.Program, in rules.Input) *rules.Outcome {
	start := r.clock.Now()
	defer func() { r.metrics.evaluation.Observe(r.clock.Since(start).Seconds()) }()
	return program.Eval(in)
}

// plan converts an outcome to changes. A node that a fail action rejects keeps its outputs. Only an annotation is written, so that
// users of the Node see that its labels can be out of date, and a taint if the administrator has configured one.
func (r *Reconciler) plan(node *corev1.Node, o *rules.Outcome, generation string) *plan.Plan {
	want := plan.Desired{Taints: o.Taints(), Conditions: o.NodeConditions(), Generation: generation, Now: metav1.NewTime(r.clock.Now())}
	if !r.disable.Labels {
		want.Labels = o.Labels()
	}
	if !r.disable.Annotations {
		want.Annotations = o.Annotations()
	}
	if !r.disable.ExtendedResources {
		want.ExtendedResources = o.ExtendedResources()
	}
	if o.Failed == nil {
		policy := r.policy
		if taint, _ := r.losses.want(node, policy.Record); taint != nil {
			if !policy.Taints {
				want.Taints = nil
			}
			policy.Taints, want.Taints = true, append(slices.Clone(want.Taints), *taint)
		}
		return plan.Compute(plan.StateOf(node), want, policy)
	}
	want.Failed = failure(o.Failed)
	if r.taint == nil {
		return plan.Compute(plan.StateOf(node), want, r.policy).Without(func(s plan.Step) bool { return !s.Mark })
	}
	policy := r.policy
	policy.Taints, want.Taints = true, []corev1.Taint{*r.taint}
	return plan.Compute(plan.StateOf(node), want, policy).Without(func(s plan.Step) bool {
		return !s.Mark && (s.Kind != keys.Taint || s.Op == plan.Remove)
	})
}

// failure returns the message for the annotation and the Event of a failed node.
func failure(f *rules.Failure) string { return f.Ref.String() + ": " + f.Message }

func (r *Reconciler) forget(name string) {
	r.memory.forget(name)
	r.stats.Forget(name)
	r.breaker.Withdraw(name)
	r.changes.Forget(name)
	r.book.Forget(name)
}
