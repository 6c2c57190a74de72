package export

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
)

// Pod keeps the labels first that a pod selects, unless it has a node.
func (o *Options) Pod(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		return
	}
	for _, label := range podlabels.Keys(&pod.Spec) {
		o.selects(label)
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		for _, x := range term.Preference.MatchExpressions {
			o.selects(x.Key)
		}
	}
}

// Requirements keeps the labels of rules first that a request or a policy reads as elements of rule.matched.
func (o *Options) Requirements(r *assayv1alpha1.PodRequirements) {
	all := []*assayv1alpha1.Requirement{r.Required}
	for i := range r.Preferred {
		all = append(all, &r.Preferred[i].Requirement)
	}
	for _, one := range all {
		if one == nil {
			continue
		}
		terms := slices.Clone(one.MatchFeatures)
		for _, group := range one.MatchAny {
			terms = append(terms, group.MatchFeatures...)
		}
		for _, term := range terms {
			if term.Feature != nfdv1alpha1.RuleMatchedFeature || term.MatchExpressions == nil {
				continue
			}
			for name := range *term.MatchExpressions {
				o.selects(name)
			}
		}
	}
}

func (o *Options) selects(label string) {
	if o.Selected == nil {
		o.Selected = map[string]bool{}
	}
	o.Selected[label] = true
}
