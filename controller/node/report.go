package node

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// report updates metrics and emits new messages of the rules.
func (r *Reconciler) report(ctx context.Context, node *corev1.Node, known *memo, o *rules.Outcome, p *plan.Plan) {
	var complaints []rulestats.Complaint
	complain := func(s plan.Step, why string) {
		if origin, _ := o.Origin(s.Kind, s.Key); origin.Object != "" {
			message := fmt.Sprintf("rule %q: %s %q: %s", origin.Rule, s.Kind, s.Key, why)
			complaints = append(complaints, rulestats.Complaint{Object: origin.Object, Message: message})
		}
	}
	for _, s := range p.Left {
		complain(s, "another client wrote it, and overwriting is not allowed")
	}
	now := r.clock.Now()
	for _, s := range p.Steps {
		if _, refused := known.refuses(s, now); refused {
			complain(s, "the API server refuses it")
		}
		if known.waits != "" && r.evicts(s) {
			complain(s, "it evicts pods, and has to wait: "+known.waits)
		}
		if _, contested := known.contests(s, now); contested {
			complain(s, fmt.Sprintf("another client keeps changing it, and it is corrected at most %d times in %s", flap.CorrectionLimit, flap.CorrectionWindow))
		}
	}
	r.stats.Report(node.Name, o, complaints...)
	if rejected := rejectionsOf(o); rejected != known.rejected { // each pass would count the same ones again
		known.rejected = rejected
		r.metrics.count(rejected)
	}
	known.said = r.say(ctx, node, known.said, o)
}

// reportLeftOut reports NodeFeatures that are ignored because of an error or a budget.
func (r *Reconciler) reportLeftOut(ctx context.Context, node *corev1.Node, list []inputs.LeftOut) {
	over, why := 0, error(nil)
	for _, left := range list {
		if left.Object.Spec.Features.Over() {
			over, why = over+1, left.Err
			continue
		}
		if featuresets.IsMissing(left.Err) {
			r.events.Eventf(node, corev1.EventTypeWarning, "FeatureSetsMissing", "NodeFeature %s: %v", left.Object.Publisher(), left.Err)
			continue
		}
		logf.FromContext(ctx).Error(left.Err, "Ignoring invalid NodeFeature", "object", left.Object.Publisher())
	}
	if over > 0 {
		logf.FromContext(ctx).Info("Ignoring NodeFeatures over the budget", "number", over, "reason", why.Error())
		r.events.Eventf(node, corev1.EventTypeWarning, "TooManyNodeFeatures", "%d are left out: %v", over, why)
	}
}

// say emits messages of the rules for a node, except for those that the last pass has emitted or skipped, and returns those of this one.
func (r *Reconciler) say(ctx context.Context, node *corev1.Node, before map[any]bool, o *rules.Outcome) (said map[any]bool) {
	isNew := func(message any) bool {
		if said == nil {
			said = map[any]bool{}
		}
		said[message] = true
		return !before[message]
	}
	if o.Failed != nil && isNew(*o.Failed) {
		r.events.Event(node, corev1.EventTypeWarning, "NodeRejected", failure(o.Failed))
	}
	for _, e := range o.Events() {
		if isNew(e) {
			r.events.Event(node, e.Type, e.Reason, e.Message)
		}
	}
	log := slog.New(logr.ToSlogHandler(logf.FromContext(ctx)))
	for _, m := range o.Messages() {
		if isNew(m) {
			log.Log(ctx, levels[m.Level], "Rule logged a message", "rule", m.Ref.String(), "message", m.Text)
		}
	}
	return said
}

// levels are the levels of the action log.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError,
}
