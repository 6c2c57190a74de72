package baseline

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/plan"
)

// Evidence is what decides whether a baseline can judge a node by its features.
type Evidence struct {
	// Object is the Node; nil: there is only its name.
	Object *corev1.Node
	// Published is set if the features include those of the node's worker.
	Published bool
	// Devices are the devices of DRA drivers; nil: they are unknown.
	Devices *facts.Facts
	// Doubtful is set if the features may not be those that the node has now, and DevicesDoubtful if the devices may not be. Only a program
	// that follows the node knows: the object of a worker has just been deleted, or a driver may be away.
	Doubtful, DevicesDoubtful bool
}

// NodeOf returns a node as a baseline judges it. Devices is set if devices matter: a node of which not all are known is then unknown.
func NodeOf(in rules.Input, e Evidence, devices bool) Node {
	out := Node{
		Input: in, Unpublished: !e.Published, Labels: in.Node.Labels,
		// Without features of a worker, the doubt about them changes nothing: the node is unknown unless no such features matter.
		Unknown: e.Doubtful && e.Published || e.Object != nil && outdated(in.Worker, e.Object) ||
			devices && (e.DevicesDoubtful || !e.Devices.DevicesComplete()),
	}
	if e.Object != nil {
		out.Labels, out.Created = e.Object.Labels, e.Object.CreationTimestamp
	}
	return out
}

// ReadsDevices reports whether the baseline reads devices of DRA drivers.
func (b *Baseline) ReadsDevices() bool { return slices.ContainsFunc(b.reads, facts.IsDevices) }

// fromCluster reports whether all features that the baseline reads come from objects of the cluster: no worker publishes them.
func (b *Baseline) fromCluster() bool {
	return len(b.reads) > 0 && !slices.ContainsFunc(b.reads, func(name string) bool { return !facts.FromCluster(name) })
}

// outdated reports whether a Node contradicts that features are those that it has now: those of its worker are of another boot, or the
// condition FeaturesReady says that they are not complete. Without that condition, for example because it is disabled, it contradicts nothing.
func outdated(worker *facts.Facts, node *corev1.Node) bool {
	boot, now := worker.Boot(), node.Status.NodeInfo.BootID
	return boot != "" && now != "" && boot != now || !Complete(node)
}

// Complete reports whether the condition FeaturesReady of a Node does not contradict that its features are known.
func Complete(node *corev1.Node) bool {
	c := plan.StateOf(node).Ready()
	return c == nil || c.Status == corev1.ConditionTrue || c.Reason == assayv1alpha1.ReasonLabelsUnmet || c.Reason == assayv1alpha1.ReasonSourcesUnread
}
