package node

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// Reconciler writes the outputs of the rules to one Node.
type Reconciler struct {
	client   client.Client
	live     client.Reader // reads from the API server
	events   record.EventRecorder
	clock    clock.PassiveClock
	age      func(created time.Time) time.Duration
	registry *assembly.Registry
	inputs   *inputs.Nodes
	settings decide.Settings
	losses   *loss.Tracker // of all nodes; nil: no node is tainted because of them
	owners   *owners
	limits   limits
	fleet    *fleet
	memory   *memory
	stats    *rulestats.Stats
	metrics  *metrics
	watchdog *Watchdog
	holds    *holds
}

// retryHeld is the delay before a node is reconciled again whose cached version is older than the last write: long enough for the
// watch to deliver the change, which normally triggers the next pass.
const retryHeld = time.Second

// pass is what the pass over one node works with.
type pass struct {
	decide.Pass
	known   *memo
	state   inputs.State
	program *rules.Program
	outcome *rules.Outcome
	active  *desired.Active

	forbidden []rulestats.Complaint // that the API server does not let the controller write the Node
}

// Reconcile implements reconcile.Reconciler: get, gather, decide, write, report.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.watchdog.begin(req.Name)()
	if r.registry.Program() == nil {
		return ctrl.Result{RequeueAfter: retryHeld}, nil // rules are still being compiled
	}
	if err := r.owners.begin(ctx, r.limits.gate); err != nil {
		return ctrl.Result{}, err
	}
	linked := r.registry.Program()
	var node corev1.Node
	if err := r.get(ctx, req.NamespacedName, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, r.forget(ctx, req.Name)
		}
		return ctrl.Result{}, err
	}
	if r.memory.replaced(&node) { // no pass has seen that the Node of before was deleted
		if err := r.forget(ctx, req.Name); err != nil {
			return ctrl.Result{}, err
		}
	}
	known := r.memory.of(&node)
	if known.newerThan(&node) {
		return ctrl.Result{RequeueAfter: retryHeld}, nil
	}
	if known.boots(&node) {
		r.limits.changes.Forget(node.Name) // another boot may be of another machine: what changed before it must not hold what this one has
		known.Flapping = nil
	}
	p, err := r.gather(ctx, linked, &node, known)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer r.limits.gate.Passed(node.Name)
	d, err := r.decide(ctx, p)
	if err == nil && !r.settings.Withholding.All {
		err = r.write(ctx, p, &d)
	}
	r.report(ctx, p, &d)
	repeat := r.holds.publish(ctx, &node, d.Holds)
	again := decide.Sooner(decide.Sooner(p.Features.Held, p.Features.DevicesHeld), d.Again)
	again = decide.Sooner(again, repeat)
	again = decide.Sooner(again, r.reportWorker(&node, p.state.Own, &known.worker))
	return ctrl.Result{RequeueAfter: again}, err
}

// get reads a Node from the cache, or from the API server after a write whose answer was lost: the cache may not have that write yet, and
// which rules gave its keys would be forgotten with a pass over the Node of before.
func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, node *corev1.Node) error {
	known := r.memory.unsure(key.Name)
	if known == nil {
		return r.client.Get(ctx, key, node, client.UnsafeDisableDeepCopy)
	}
	if err := r.live.Get(ctx, key, node); err != nil {
		return err
	}
	if node.UID == known.uid {
		known.Written = node.ResourceVersion // the cache may be older
	}
	_, err := Slim(node)
	return err
}

// gather evaluates the rules on a node, and collects what the decision depends on.
func (r *Reconciler) gather(ctx context.Context, linked *assembly.Linked, node *corev1.Node, known *memo) (*pass, error) {
	r.inputs.Need(linked.Program.Reads())
	state, err := r.inputs.Of(ctx, node)
	if err != nil {
		return nil, err
	}
	r.reportLeftOut(ctx, node, state.LeftOut)
	p := &pass{known: known, state: state, program: linked.Program, active: r.owners.of(linked), outcome: r.eval(linked.Program, state.Input)}
	origins := &desired.Origins{
		Outcome: p.outcome, Worker: state.Input.Worker, Active: p.active, Past: r.owners.book.Past(), Memory: &known.Memory.Memory, Unknown: state.Blind,
		Inactive:  r.owners.states(p.active),
		Suspended: r.owners.suspended != nil && r.owners.suspended(),
	}
	changes := r.limits.changes.Of(node.Name)
	now := r.clock.Now()
	if known.born.IsZero() {
		known.born = now.Add(-r.age(node.CreationTimestamp.Time))
	}
	p.Pass = decide.Pass{
		Settings: &r.settings, Now: now, Age: now.Sub(known.born), Node: node, Rules: desired.Of(p.outcome),
		Features: r.features(state, now), Memory: known.Memory,
		Reason: func(s plan.Step, now time.Time) decide.Key { return decide.KeyOf(origins, changes, s, now) },
	}
	p.Rules.Suspended = origins.Suspended
	if p.outcome.MayFail() {
		p.Rules.KeepFailure(node)
	}
	if r.losses != nil {
		p.Losses = r.losses.Of(node.Name)
	}
	return p, nil
}

func (r *Reconciler) eval(program *rules.Program, in rules.Input) *rules.Outcome {
	start := r.clock.Now()
	defer func() { r.metrics.evaluation.Observe(r.clock.Since(start).Seconds()) }()
	return program.Eval(in)
}

// features returns what a decision depends on of the state of a node.
func (r *Reconciler) features(state inputs.State, now time.Time) decide.Features {
	left := func(until time.Time) time.Duration {
		if until.IsZero() {
			return 0
		}
		return max(time.Nanosecond, until.Sub(now)) // it counted when the state was read
	}
	f := decide.Features{
		Held: left(state.HeldUntil), Unknown: state.Blind, Undefined: r.owners.undefined(now, r.inputs.Grace()),
		DevicesHeld: left(state.Devices.HeldUntil), DevicesIncomplete: state.Devices.Incomplete,
		DevicesOver: state.Devices.Facts.DevicesOver(),
	}
	if state.Devices.Unseen(now) {
		f.DevicesUnseen = left(state.Devices.UnseenUntil)
	}
	if own := state.Own; own != nil {
		f.Worker = &decide.Worker{
			Publisher: own.Publisher(), Boot: own.Spec.Features.Facts.Boot(), MissingSets: own.Annotations[assayv1alpha1.MissingFeatureSetsAnnotation],
			Unread: own.Spec.Features.Facts.Unread(),
		}
	}
	if err := r.inputs.LeftOutOwn(state); err != nil {
		f.LeftOut = err.Error()
		var missing *featuresets.MissingError
		if errors.As(err, &missing) && missing.Bytes == 0 { // otherwise it is too large, and its sets may all exist
			f.MissingSets = missing.Sets
		}
	}
	if r.settings.NotifySchedulers {
		h := fnv.New64a()
		for _, f := range state.Features.All() {
			fmt.Fprintf(h, "%s %d\n", f.UID, f.Generation)
		}
		f.Generation = fmt.Sprintf("%016x", h.Sum64())
	}
	return f
}

// decide decides about a node, and gets the evidence that the decision needs. It emits the Events of the decision, also if there is no
// evidence for it.
func (r *Reconciler) decide(ctx context.Context, p *pass) (decide.Decision, error) {
	for {
		d := decide.Decide(p.Pass)
		err := r.getEvidence(ctx, p, &d)
		if err == nil && len(d.Needs) > 0 {
			continue
		}
		if p.Evidence.Budget == nil {
			r.limits.breaker.Withdraw(p.Node.Name)
		}
		if p.Evidence.Health == nil {
			r.limits.health.Withdraw(p.Node.Name)
		}
		p.known.Memory = d.Memory
		r.emit(p.Node, d.Events...)
		return d, err
	}
}

// emit emits Events about a node.
func (r *Reconciler) emit(node *corev1.Node, events ...decide.Event) {
	for _, e := range events {
		r.events.AnnotatedEventf(node, hold.AboutKeys(e.Keys), e.Type, e.Reason, "%s", e.Message)
	}
}

// forget drops everything that is known of a deleted Node. Another Node of this name may be another machine.
func (r *Reconciler) forget(ctx context.Context, name string) error {
	r.memory.forget(name)
	r.stats.Forget(name)
	r.limits.breaker.Withdraw(name)
	r.limits.health.Withdraw(name)
	r.limits.changes.Forget(name)
	r.holds.forget(ctx, name)
	return r.owners.book.Forget(ctx, name)
}
