package podadmission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/requirements"
)

// unenforced is why nothing enforces the requirements of a pod, and what to write.
const unenforced = "nothing enforces these requirements: the default scheduler does not check features unless the extender is attached to it, and no " +
	"node selector requires a label for them; use the label " + assayv1alpha1.FeatureRequestLabel + ", or schedulerName: assay"

// Unenforced returns why nothing enforces what a pod requires, or "" if something does, as far as its spec shows: a scheduler of its
// choice, which may ask the extender, or a label of rules or requests in its node selector or node affinity.
func Unenforced(spec *corev1.PodSpec, reqs *requirements.Requirements) string {
	if reqs == nil || len(reqs.Required) == 0 || spec.NodeName != "" && spec.SchedulerName == "" {
		return ""
	}
	if spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName {
		return ""
	}
	for key := range spec.NodeSelector {
		if OfFeatures(key) {
			return ""
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if OfFeatures(e.Key) {
					return ""
				}
			}
		}
	}
	return unenforced
}

// OfFeatures reports whether the namespace of a label is one that rules and requests write to by default.
func OfFeatures(label string) bool {
	namespace, _, _ := strings.Cut(label, "/")
	return namespace == assayv1alpha1.RequestLabelNamespace || namespace == nfdv1alpha1.FeatureLabelNamespace ||
		strings.HasSuffix(namespace, "."+nfdv1alpha1.FeatureLabelNamespace)
}

// Enforced reports whether one of the changes of Decide lets the scheduler enforce the requirements.
func Enforced(steps []Patch) bool {
	for _, step := range steps {
		if strings.HasPrefix(step.Path, "/spec/") {
			return true
		}
	}
	return false
}
