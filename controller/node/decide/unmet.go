package decide

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// unmet holds labels of materialized requests that a node has although it does not meet the requests. Node pools declare such labels,
// so that an autoscaler buys a node for pods that need it, and a wrong declaration must not place these pods. Until the worker has
// published features of this boot, the declaration counts.
type unmet struct {
	// labels are sorted.
	labels []string
	// held is set if the node keeps the labels for now, and is not ready. Pods cannot use it because of its start-up taint. Without
	// the label, the autoscaler would buy the next node of the same pool at once, and another one after that.
	held bool
}

// unmet returns the unmet labels of a node. Labels that a rule gave, and that are in the record, are removed like all others, unless
// the node has just joined: the template of its pool contains the record too.
func (p *Pass) unmet(in *plan.Plan) unmet {
	if !p.Settings.Requests || p.Features.Unknown || p.Rules.Failed != nil || !p.current() {
		return unmet{}
	}
	out := unmet{held: p.joining()}
	for name := range p.Node.Labels {
		if _, met := p.Rules.Labels[name]; met || !strings.HasPrefix(name, assayv1alpha1.RequestLabelNamespace+"/") || !out.held && in.Owns(name) {
			continue
		}
		if p.Memory.refuses(plan.Step{Kind: keys.Label, Key: name}, p.Now) == 0 {
			out.labels = append(out.labels, name)
		}
	}
	slices.Sort(out.labels)
	return out
}

// unregistered is the taint of Karpenter's nodes until it has written the labels and the start-up taints of their pool.
const unregistered = "karpenter.sh/unregistered"

// joining reports whether a node has the start-up taint, or is about to get it, and was never ready.
func (p *Pass) joining() bool {
	startup := p.Settings.Startup
	closed := startup.on(p.Node) || slices.ContainsFunc(p.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == unregistered })
	ready := plan.StateOf(p.Node).Ready()
	return p.Settings.Ready && closed && (ready == nil || ready.Status != corev1.ConditionTrue) && p.Age < startup.FailOpenAfter
}

// current reports whether the worker of a node has published the features of all sources since the node booted.
func (p *Pass) current() bool {
	if p.Features.Worker == nil || len(p.Features.Worker.Unread) > 0 {
		return false
	}
	boot, now := p.Features.Worker.Boot, p.Node.Status.NodeInfo.BootID
	return boot == "" || now == "" || boot == now
}

// in returns the plan that also removes the labels, or leaves them to the client that wrote them.
func (u unmet) in(p *plan.Plan) *plan.Plan {
	if u.held {
		return p.Disown(u.labels)
	}
	return p.WithoutLabels(u.labels)
}

// condition returns the condition FeaturesReady of a node that keeps the labels; nil: it does not.
func (u unmet) condition() *corev1.NodeCondition {
	if !u.held || len(u.labels) == 0 {
		return nil
	}
	return unready(assayv1alpha1.ReasonLabelsUnmet, "The node joined with %s, and does not meet the NodeFeatureRequest. "+
		"Correct the labels of its node pool, and delete the node.", hold.Some(u.labels))
}

// unmetEvents reports the labels once.
func (p *Pass) unmetEvents(u unmet) []Event {
	if len(u.labels) == 0 {
		return nil
	}
	if c := u.condition(); c != nil {
		if have := plan.StateOf(p.Node).Ready(); have != nil && have.Reason == c.Reason {
			return nil
		}
		return []Event{{Type: corev1.EventTypeWarning, Reason: c.Reason, Message: c.Message}}
	}
	return []Event{{
		Type: corev1.EventTypeWarning, Reason: "UnmetLabelRemoved",
		Message: "Removed " + hold.Some(u.labels) +
			": another client set it, but the node does not meet the NodeFeatureRequest. If a node pool declares the label, correct the pool",
	}}
}
