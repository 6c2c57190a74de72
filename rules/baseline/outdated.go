package baseline

import (
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/plan"
)

// Outdated reports whether a Node contradicts that features are those that it has now: those of its worker are of another boot, or the
// condition FeaturesReady says that they are not complete. Without that condition, for example because it is disabled, it contradicts nothing.
func Outdated(worker *facts.Facts, node *corev1.Node) bool {
	boot, now := worker.Boot(), node.Status.NodeInfo.BootID
	return boot != "" && now != "" && boot != now || !Complete(node)
}

// Complete reports whether the condition FeaturesReady of a Node does not contradict that its features are known.
func Complete(node *corev1.Node) bool {
	c := plan.StateOf(node).Ready()
	return c == nil || c.Status == corev1.ConditionTrue || c.Reason == assayv1alpha1.ReasonLabelsUnmet || c.Reason == assayv1alpha1.ReasonSourcesUnread
}
