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
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

// Scheduling is what the review of pods and workloads needs. Its configuration is one of its own, off by default; see
// SchedulingConfigurations.
type Scheduling struct {
	// Requirements knows what pods require, Index which nodes have it. Index may be nil: then there are no warnings about nodes.
	Requirements *podrequirements.Resolver
	Index        *index.Index
	// Namespace returns the labels of a namespace; it must be quick.
	Namespace func(name string) map[string]string
	// Labels returns which requirements are the same as a label; nil: none are.
	Labels   func() podadmission.Labels
	Settings podadmission.Settings
}

// workloads lists the kinds, in addition to pods, whose pods may require features.
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

// reviewPod changes a pod that requires or prefers features so that it gets where they are. It rejects none: the client that
// creates pods is usually a controller that would only try again, and the scheduler's event says what is wrong.
func (o *Options) reviewPod(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	pod, err := decodeOne[corev1.Pod](req.Object.Raw)
	if err != nil || pod == nil || req.Operation != admissionv1.Create {
		return v, err
	}
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
	in := podadmission.Input{
		Pod: pod, Requirements: reqs, Policies: s.Requirements.Policies(req.Namespace, pod.Labels), Settings: s.Settings,
	}
	if s.Namespace != nil {
		in.Namespace = s.Namespace(req.Namespace)
	}
	if s.Labels != nil {
		in.Labels = s.Labels()
	}
	if steps := podadmission.Decide(in); len(steps) > 0 {
		if v.patch, err = json.Marshal(steps); err != nil {
			return nil, fmt.Errorf("write the patch: %w", err)
		}
	}
	return v, nil
}

// reviewWorkload rejects workloads whose pods would have invalid annotations, and warns of requirements that no node satisfies
// at the moment. Errors that were there before an update are warnings.
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
	o.warnOfNodes(v, pods.Path.String(), whole)
	return v, nil
}

// aboutRequest warns of a problem that keeps pods from any node, unless it is in their annotations: then the findings have it.
func (v *verdict) aboutRequest(pods *review.Pods, problem string) {
	if valid := v.Requirements != nil || !requirements.HasAny(nil, pods.Annotations); problem != "" && valid {
		v.Warn(pods.Path.Child("labels").Key(assayv1alpha1.FeatureRequestLabel).String(), rules.RankDefect, "%s", problem)
	}
}

// warnOfNodes warns if no node has what is required.
func (o *Options) warnOfNodes(v *verdict, path string, reqs *requirements.Requirements) {
	view := o.Scheduling.Index
	if view == nil || !view.Synced() || reqs.Empty() || len(reqs.Required) == 0 {
		return
	}
	a := view.Query(reqs, 0)
	if text := podadmission.Warning(a.Matching, a.Nodes, a.Nearest, a.Lacks); text != "" {
		v.Warn(path, rules.RankUnlikely, "%s", text)
	}
}
