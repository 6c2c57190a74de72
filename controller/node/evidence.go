package node

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// limits are what limits writes to all nodes.
type limits struct {
	breaker *budget.Breaker
	health  *budget.Breaker // of additions because of the health of nodes; nil: they have no limit
	gate    *budget.Gate    // sets the pace of taints that evict pods
	changes *flap.Changes   // of keys of each node
	turns   flap.Turns      // of nodes whose contested keys are written again
}

// getEvidence gets what a decision needs. An error ends the pass.
func (r *Reconciler) getEvidence(ctx context.Context, p *pass, d *decide.Decision) error {
	for _, need := range d.Needs {
		switch need {
		case decide.NeedStart:
			p.Evidence.Start = r.confirmStart(ctx, p)
			p.Now = r.clock.Now() // the request can have taken long
		case decide.NeedBudget:
			p.Evidence.Budget = r.askBudget(ctx, p.Node.Name, d)
		case decide.NeedHealth:
			p.Evidence.Health = &decide.Answer{OK: true}
			if b := r.limits.health; b != nil {
				p.Evidence.Health.OK, p.Evidence.Health.Wait = b.Allow(p.Node.Name, r.fleet.having(ctx, r.inputs, d.HealthFeatures), d.Hits...)
			}
		case decide.NeedPace:
			ok, held := r.limits.gate.Allow(p.Node.Name, p.Node.Labels[corev1.LabelTopologyZone], func() budget.Fleet {
				return r.fleet.evicted(ctx, &r.settings)
			})
			p.Evidence.Pace = &decide.Answer{OK: ok, Why: held.Why, Wait: held.Wait}
		case decide.NeedTurn:
			p.Evidence.Turn = r.limits.turns.Take(p.Now)
		case decide.NeedMaster:
			p.Evidence.Master = r.master(ctx, p.Node.Name)
		case decide.NeedList:
			if err := r.inputs.Confirm(ctx, p.state); err != nil {
				return err
			}
			p.Evidence.Listed = true
		case decide.NeedProof:
			vanished, err := r.owners.featuresVanished(ctx)
			if err != nil {
				return err
			}
			if vanished { // the watch of the definition says it later
				p.Features.Undefined.Absent = true
				continue
			}
			if err := r.prove(ctx, p, d.Doubtful); err != nil {
				return err
			}
			p.Evidence.Proven = true
		}
	}
	return nil
}

// retryIncomplete is the delay before a node is reconciled again whose NodeFeatures the cache lacks. They normally trigger a pass when
// they arrive, or when a watch is opened again.
const retryIncomplete = time.Minute

// confirmStart checks that the cache has the NodeFeatures of the node that existed when this process started.
func (r *Reconciler) confirmStart(ctx context.Context, p *pass) *decide.Answer {
	switch err := r.inputs.ConfirmStart(ctx, p.state); {
	case err == nil:
		return &decide.Answer{OK: true}
	case errors.Is(err, inputs.ErrStale):
		return &decide.Answer{Wait: retryIncomplete}
	default:
		logf.FromContext(ctx).Info("Holding removals: cannot list NodeFeatures", "node", p.Node.Name, "error", err.Error())
		return &decide.Answer{Wait: retryHeld}
	}
}

// askBudget asks whether a node may lose keys.
func (r *Reconciler) askBudget(ctx context.Context, name string, d *decide.Decision) *decide.Answer {
	var out decide.Answer
	if d.Unattributed {
		out.OK, out.Wait = r.limits.breaker.AllowUnattributed(name, d.Losing...)
	} else {
		out.OK, out.Wait = r.limits.breaker.Allow(name, r.fleet.size(ctx), d.Losing...)
	}
	if !out.OK {
		r.metrics.held.Inc()
	}
	return &out
}

// master returns the client that last wrote the record of labels on a Node, other than this controller. The cache has no managedFields.
func (r *Reconciler) master(ctx context.Context, name string) *string {
	var node metav1.PartialObjectMetadata
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		logf.FromContext(ctx).Info("Cannot read which client changes what rules give", "node", name, "error", err.Error())
		return new(string)
	}
	record, found := "f:"+r.settings.Policy.Record.Labels(), ""
	var at time.Time
	for i := range node.ManagedFields {
		m := &node.ManagedFields[i]
		if m.FieldsV1 == nil || m.Time == nil || !m.Time.After(at) || !bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(strconv.Quote(record))) {
			continue
		}
		found, at = m.Manager, m.Time.Time
	}
	return &found
}

// errInconsistent is returned after the facts in memory gave another result than those of the API server.
var errInconsistent = errors.New("the features in memory differ from those of the API server; the node is evaluated again with the latter")

// prove checks that the rules give the same for the keys of some steps with the features that the API server has.
func (r *Reconciler) prove(ctx context.Context, p *pass, doubtful []plan.Step) error {
	proof, err := r.inputs.Prove(ctx, p.state)
	if err != nil {
		return err
	}
	outcome := p.program.Eval(proof.Input)
	agrees := func(s plan.Step) bool {
		value, gives := wanted(outcome, s)
		return gives == (s.Op != plan.Remove) && (!gives || value == s.New)
	}
	if (outcome.Failed == nil) == (p.outcome.Failed == nil) && !slices.ContainsFunc(doubtful, func(s plan.Step) bool { return !agrees(s) }) {
		return nil
	}
	r.metrics.inconsistent.Inc()
	logInconsistent(ctx, p, proof, r.registry.Options().Mask)
	r.inputs.Replace(proof)
	return errInconsistent
}

// wanted returns the value that an outcome has for the key of a step.
func wanted(o *rules.Outcome, s plan.Step) (value string, ok bool) {
	switch s.Kind {
	case keys.Label:
		value, ok = o.Labels()[s.Key]
	case keys.Annotation:
		value, ok = o.Annotations()[s.Key]
	case keys.Resource:
		value, ok = o.ExtendedResources()[s.Key]
	case keys.Condition:
		value, ok = o.NodeConditions()[s.Key]
	case keys.Taint:
		i := slices.IndexFunc(o.Taints(), func(t corev1.Taint) bool { return keys.TaintName(t) == s.Key })
		if ok = i >= 0; ok {
			value = o.Taints()[i].Value
		}
	}
	return value, ok
}

func logInconsistent(ctx context.Context, p *pass, proof *inputs.Proof, mask rules.Masking) {
	log := logf.FromContext(ctx).WithValues("node", p.Node.Name)
	d := inputs.Differ(p.state.Input.Facts, proof.Input.Facts)
	if d == nil {
		log.Error(errInconsistent, "Dropped a plan that takes keys away: the rules give another result for equal features")
		return
	}
	shown := func(value *string) string {
		switch {
		case value == nil:
			return "(none)"
		case mask.Hides(d.Element):
			return "(masked)"
		}
		return *value
	}
	log.Error(errInconsistent, "Dropped a plan that takes keys away",
		"feature", d.Feature, "element", d.Element, "inMemory", shown(d.First), "inTheAPIServer", shown(d.Second))
}
