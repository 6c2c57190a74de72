package node

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// unmet returns the labels of materialized requests that another client has written to a node although the node does not meet the
// requests. Node pools declare such labels, so that an autoscaler buys a node for pods that need it; a wrong declaration must not
// place these pods. Until the worker has published features of this boot, the declaration counts.
func (r *Reconciler) unmet(j *judge, p *plan.Plan) (out []string) {
	if !r.requests || j.blind || j.outcome.Failed != nil || !current(j) {
		return nil
	}
	wanted, now := j.outcome.Labels(), r.clock.Now()
	for name := range j.node.Labels {
		if !strings.HasPrefix(name, assayv1alpha1.RequestLabelNamespace+"/") || p.Owns(name) {
			continue
		}
		_, met := wanted[name]
		_, refused := j.known.refuses(plan.Step{Kind: keys.Label, Key: name}, now)
		if !met && !refused {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// current reports whether the worker of a node has published features since the node booted.
func current(j *judge) bool {
	if j.state.Own == nil {
		return false
	}
	boot, now := bootOf(j.state.Own), j.node.Status.NodeInfo.BootID
	return boot == "" || now == "" || boot == now
}

// removedUnmet reports labels that were removed from a node.
func (r *Reconciler) removedUnmet(node *corev1.Node, labels []string) {
	if len(labels) > 0 {
		r.events.Eventf(node, corev1.EventTypeWarning, "UnmetLabelRemoved",
			"Removed %s: another client set it, but the node does not meet the NodeFeatureRequest. If a node pool declares the label, correct the pool", strings.Join(labels, ", "))
	}
}
