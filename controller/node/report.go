package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// report updates metrics and emits new messages of the rules.
func (r *Reconciler) report(ctx context.Context, p *pass, d *decide.Decision) {
	o, known := p.outcome, p.known
	var complaints []rulestats.Complaint
	known.Complaints(&r.settings, d.Wanted, r.clock.Now(), func(s plan.Step, why string) {
		if origin, _ := o.Origin(s.Kind, s.Key); origin.Object != "" {
			message := fmt.Sprintf("rule %q: %s %q: %s", origin.Rule, s.Kind, s.Key, why)
			complaints = append(complaints, rulestats.Complaint{Object: origin.Object, Message: message})
		}
	})
	r.stats.Report(p.Node.Name, o, known.FlappingOf(), waiting(o, d), append(p.forbidden, complaints...)...)
	if rejected := rejectionsOf(o); rejected != known.rejected { // each pass would count the same ones again
		known.rejected = rejected
		r.metrics.count(rejected)
	}
	known.emitted = r.emitMessages(ctx, p.Node, known.emitted, o)
}

// waiting returns the objects with outputs that the budget of health holds.
func waiting(o *rules.Outcome, d *decide.Decision) map[string]bool {
	var out map[string]bool
	for _, h := range d.Holds {
		if h.Reason != hold.Addition {
			continue
		}
		for _, s := range d.Wanted.Steps {
			if origin, _ := o.Origin(s.Kind, s.Key); origin.Object != "" && h.Has(s.Kind, s.Key) {
				if out == nil {
					out = map[string]bool{}
				}
				out[origin.Object] = true
			}
		}
	}
	return out
}

// reportLeftOut reports NodeFeatures that are ignored because of an error or a budget.
func (r *Reconciler) reportLeftOut(ctx context.Context, node *corev1.Node, list []inputs.LeftOut) {
	over, why := 0, error(nil)
	for _, left := range list {
		if left.Object.Spec.Features.Over() {
			over, why = over+1, left.Err
			continue
		}
		var missing *featuresets.MissingError
		if errors.As(left.Err, &missing) {
			reason := "FeatureSetsMissing"
			if missing.Bytes > 0 {
				reason = "NodeFeatureTooLarge"
			}
			r.events.Eventf(node, corev1.EventTypeWarning, reason, "NodeFeature %s: %v", left.Object.Publisher(), left.Err)
			continue
		}
		logf.FromContext(ctx).Error(left.Err, "Ignoring invalid NodeFeature", "object", left.Object.Publisher())
		r.events.Eventf(node, corev1.EventTypeWarning, "NodeFeatureInvalid", "NodeFeature %s cannot be read: %v", left.Object.Publisher(), left.Err)
	}
	if over > 0 {
		logf.FromContext(ctx).Info("Ignoring NodeFeatures over the budget", "number", over, "reason", why.Error())
		r.events.Eventf(node, corev1.EventTypeWarning, "TooManyNodeFeatures", "%d are left out: %v", over, why)
	}
}

// reasonInvalidConfiguration is the reason of the Event about a changed configuration that a worker rejects.
const reasonInvalidConfiguration = "InvalidConfiguration"

// workerReportInterval is the minimum time between two Events about the configuration of a worker. Its token can change the text at will, and the
// recorder drops other Events about a Node of which there are more than one in five minutes for long.
const workerReportInterval = 5 * time.Minute

// workerReport is what was reported of the configuration of a worker.
type workerReport struct {
	text string
	at   time.Time
}

// reportWorker reports a configuration that the worker of a node rejects, when its errors change. It returns the time until it has to be
// called again because of the interval; 0: it has not. Without an object of the worker nothing is known.
func (r *Reconciler) reportWorker(node *corev1.Node, own *nodefeature.NodeFeature, last *workerReport) time.Duration {
	if own == nil {
		return 0
	}
	text := nodefeature.Rejected(own)
	if text == "" || text == last.text {
		last.text = text
		return 0
	}
	now := r.clock.Now()
	if left := workerReportInterval - now.Sub(last.at); !last.at.IsZero() && left > 0 {
		return left
	}
	*last = workerReport{text, now}
	r.events.Event(node, corev1.EventTypeWarning, reasonInvalidConfiguration, "The worker keeps its previous configuration: "+text)
	return 0
}

// emitMessages emits messages of the rules for a node, except for those that the last pass has emitted or skipped, and returns those of this
// one.
func (r *Reconciler) emitMessages(
	ctx context.Context, node *corev1.Node, before map[any]bool, o *rules.Outcome,
) (emitted map[any]bool) {
	isNew := func(message any) bool {
		if emitted == nil {
			emitted = map[any]bool{}
		}
		emitted[message] = true
		return !before[message]
	}
	if o.Failed != nil && isNew(*o.Failed) {
		r.events.Event(node, corev1.EventTypeWarning, "NodeRejected", desired.Of(o).Failed.String())
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
	return emitted
}

// levels are the levels of the action log.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError,
}
