package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/warning"
)

// Scheduling configures the review of pods and workloads. It has its own webhook configuration, off by default; see
// SchedulingConfigurations.
type Scheduling struct {
	// Requirements returns the requirements of pods, Index the nodes that meet them. Index can be nil: then there are no warnings about
	// nodes.
	Requirements *podrequirements.Resolver
	Index        *index.Index
	// Namespace returns the labels of a namespace; it must be fast.
	Namespace func(name string) map[string]string
	// Labels returns which requirements are equivalent to a label; nil: none are.
	Labels func() podadmission.Labels
	// Attached is set if the extender is attached to the default scheduler too, which then enforces the requirements of pods.
	Attached bool
	// Shapes returns the NodeShapes, which callers do not change; nil: they are not read.
	Shapes func() []assayv1alpha1.NodeShape
}

// workloads lists the kinds whose pod templates can require features.
var workloads = []resource{
	{"apps", "deployments"}, {"apps", "statefulsets"}, {"apps", "daemonsets"}, {"apps", "replicasets"},
	{"batch", "jobs"}, {"batch", "cronjobs"},
}

// addScheduling adds the reviewers of pods and workloads.
func addScheduling(all map[resource]reviewer, o *Options) {
	if o.Scheduling == nil {
		return
	}
	all[resource{"", "pods"}] = o.reviewPod
	for _, r := range workloads {
		all[r] = o.reviewWorkload
	}
}

// reviewPod mutates a pod that requires or prefers features so that it is scheduled accordingly. It rejects no pod: the client is
// usually a controller that would only retry, and the scheduler's event reports what is wrong.
func (o *Options) reviewPod(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	if parts(req.Object.Raw) > maxParts {
		return v, nil // the API server rejects it
	}
	pod, err := decodeOne[corev1.Pod](req.Object.Raw)
	if err != nil || pod == nil || req.Operation != admissionv1.Create {
		return v, err
	}
	pod.Namespace = req.Namespace // which the object itself may lack
	s := o.Scheduling
	reqs, problem := s.Requirements.Of(req.Namespace, pod.Labels, pod.Annotations)
	if metav1.GetControllerOf(pod) == nil { // no user reads warnings to a controller; the review of its workload gave them
		own := &review.Pods{Labels: pod.Labels, Annotations: pod.Annotations, Path: field.NewPath("metadata"), Single: true}
		v.Findings = review.Review(own, o.Known)
		v.aboutRequest(own, problem)
	}
	if reqs == nil || problem != "" {
		return v, nil
	}
	steps := s.decide(pod, reqs)
	if metav1.GetControllerOf(pod) == nil {
		s.enforced(v, &review.Pods{Labels: pod.Labels, Annotations: pod.Annotations, Path: field.NewPath("metadata")}, &pod.Spec, reqs, steps)
	}
	if len(steps) > 0 {
		if v.patch, err = json.Marshal(steps); err != nil {
			return nil, fmt.Errorf("write the patch: %w", err)
		}
	}
	return v, nil
}

// decide returns the changes to a pod.
func (s *Scheduling) decide(pod *corev1.Pod, reqs *requirements.Requirements) []podadmission.Patch {
	in := podadmission.Input{
		Pod: pod, Requirements: reqs, Policies: s.Requirements.Policies(pod.Namespace, pod.Labels),
	}
	if s.Namespace != nil {
		in.Namespace = s.Namespace(pod.Namespace)
	}
	if s.Labels != nil {
		in.Labels = s.Labels()
	}
	return podadmission.Decide(in)
}

// enforced warns about requirements that nothing enforces, also after the changes to the pods. It leaves out pods that name a request,
// whose label another policy or webhook adds to the node selector.
func (s *Scheduling) enforced(v *verdict, pods *review.Pods, spec *corev1.PodSpec, reqs *requirements.Requirements, steps []podadmission.Patch) {
	if s.Attached || pods.Labels[assayv1alpha1.FeatureRequestLabel] != "" || podadmission.Enforced(steps) {
		return
	}
	if why := podadmission.Unenforced(spec, reqs); why != "" {
		v.Warn(requirer(pods), warning.Defect, "%s", why)
	}
}

// reviewWorkload rejects workloads whose pods would have invalid annotations, and warns about requirements that no node meets now.
// Errors that the old object had too become warnings.
func (o *Options) reviewWorkload(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	if len(req.Object.Raw) == 0 || req.Operation == admissionv1.Delete {
		return v, nil
	}
	pods, err := review.PodsOf(req.Kind.Kind, req.Object.Raw)
	if err != nil || pods == nil {
		return v, err
	}
	if v.Findings = review.Review(pods, o.Known); len(v.Errors) > 0 {
		if old, err := review.PodsOf(req.Kind.Kind, req.OldObject.Raw); err == nil {
			before := review.Review(old, o.Known)
			v.ratchet(nil, nil, before.Errors)
		}
		return v, nil
	}
	whole, problem := o.Scheduling.Requirements.Of(req.Namespace, pods.Labels, pods.Annotations)
	v.aboutRequest(pods, problem)
	if whole == nil {
		whole = v.Requirements
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Labels: pods.Labels}}
	if pods.Spec != nil && problem == "" && !whole.Empty() {
		pod.Spec, pod.Annotations = *pods.Spec, pods.Annotations
		o.Scheduling.enforced(v, pods, pods.Spec, whole, o.Scheduling.decide(pod, whole))
	}
	o.warnOfNodes(v, requirer(pods), whole, pod)
	return v, nil
}

// requirer returns the path of what requires features: the annotation of the pods or else their label, and their metadata if only a policy does.
func requirer(pods *review.Pods) string {
	for _, key := range requirements.AnnotationKeys {
		if pods.Annotations[key] != "" {
			return requirements.AnnotationPath(pods.Path, key).String()
		}
	}
	if pods.Labels[assayv1alpha1.FeatureRequestLabel] != "" {
		return pods.Path.Child("labels").Key(assayv1alpha1.FeatureRequestLabel).String()
	}
	return pods.Path.String()
}

// aboutRequest warns about a problem that keeps pods from being scheduled, unless the problem is in their annotations, which the
// findings already report.
func (v *verdict) aboutRequest(pods *review.Pods, problem string) {
	if valid := v.Requirements != nil || !requirements.HasAny(nil, pods.Annotations); problem != "" && valid {
		v.Warn(pods.Path.Child("labels").Key(assayv1alpha1.FeatureRequestLabel).String(), warning.Defect, "%s", problem)
	}
}

// warnOfNodes warns if no node meets the requirements of a pod, and says whether a new one would.
func (o *Options) warnOfNodes(v *verdict, path string, reqs *requirements.Requirements, pod *corev1.Pod) {
	s := o.Scheduling
	view := s.Index
	if view == nil || !view.Synced() || reqs.Empty() || len(reqs.Required) == 0 {
		return
	}
	a := view.Query(reqs, 0)
	var shape podadmission.Shape
	if a.Matching == 0 && s.Shapes != nil && s.Labels != nil {
		shape = s.Labels().ShapeOf(reqs, pod, s.Shapes())
	}
	if text := podadmission.Warning(a.Matching, a.Nodes, a.Nearest, a.Lacks, shape); text != "" {
		v.Warn(path, warning.Unlikely, "%s", text)
	}
}
