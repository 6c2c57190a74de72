package requirements

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// Policy is a compiled NodeFeatureSchedulingPolicy. It is immutable and safe for concurrent use.
type Policy struct {
	// Name is the name of the object.
	Name string
	// Requirements holds the requirements and preferences of the pods.
	Requirements *Requirements
	// SchedulerName is the scheduler for pods that have the default scheduler. Empty means unchanged.
	SchedulerName string

	namespaces, pods labels.Selector
}

// CompilePolicy compiles a policy. It returns nil if there are errors.
func CompilePolicy(obj *assayv1alpha1.NodeFeatureSchedulingPolicy, opt rules.Options) (*Policy, *rules.Report) {
	path := field.NewPath("spec")
	reqs, report := Compile(&obj.Spec.PodRequirements, path, "policy "+obj.Name, opt)
	p := &Policy{Name: obj.Name, Requirements: reqs, SchedulerName: obj.Spec.SchedulerName}
	p.namespaces = selector(obj.Spec.NamespaceSelector, path.Child("namespaceSelector"), report)
	p.pods = labels.Everything()
	if obj.Spec.PodSelector != nil {
		p.pods = selector(obj.Spec.PodSelector, path.Child("podSelector"), report)
	}
	if stale := obj.Spec.StaleAfter; stale != nil {
		seconds := int64(stale.Duration.Seconds())
		switch {
		case seconds < 1:
			report.Errors = append(report.Errors, field.Invalid(path.Child("staleAfter"), stale.Duration.String(), "must be 1s or more"))
		case obj.Spec.OnStale == assayv1alpha1.StaleReject && reqs != nil:
			reqs.StaleAfter, reqs.StaleOrigin = seconds, "policy "+obj.Name
		}
	}
	switch obj.Spec.OnStale {
	case "", assayv1alpha1.StaleTrust, assayv1alpha1.StaleReject:
	default:
		report.Errors = append(report.Errors, NotSupported(path.Child("onStale"), obj.Spec.OnStale,
			[]assayv1alpha1.StalePolicy{assayv1alpha1.StaleTrust, assayv1alpha1.StaleReject}))
	}
	report.Errors = append(report.Errors, CheckLoss(&obj.Spec.LossResponse, path)...)
	if !report.OK() {
		return nil, report
	}
	return p, report
}

func selector(in *metav1.LabelSelector, path *field.Path, report *rules.Report) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		report.Errors = append(report.Errors, field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
	return out
}

// Selects reports whether the policy applies to a pod. In addition to the policy's own selectors, the namespace must be labeled for
// scheduling: the owner of a namespace decides whether Assay may affect scheduling in it.
func (p *Policy) Selects(pod, namespace map[string]string) bool {
	return namespace[assayv1alpha1.SchedulingLabel] == assayv1alpha1.SchedulingLabelEnabled &&
		p.namespaces.Matches(labels.Set(namespace)) && p.pods.Matches(labels.Set(pod))
}
