package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
)

// Scheduling is what the review of pods and workloads needs. Its configuration is one of its own, off by default; see
// SchedulingConfigurations.
type Scheduling struct {
	// Asks knows what pods ask for, View which nodes have it. View may be nil: then there are no warnings about nodes.
	Asks *podrequirements.Asks
	View *index.View
	// Namespace returns the labels of a namespace; it must be quick.
	Namespace func(name string) map[string]string
	// Labels returns which requirements are the same as a label; nil: none are.
	Labels   func() podadmission.Labels
	Settings podadmission.Settings
}

// workloads lists the kinds whose pods may ask for features, besides pods themselves.
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

// reviewPod changes a pod that asks for features so that it gets where they are. It refuses none: whoever made the pod is
// usually a controller that would only try again, and the scheduler's event says what is wrong.
func (o *Options) reviewPod(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	pod, err := decodeOne[corev1.Pod](req.Object.Raw)
	if err != nil || pod == nil || req.Operation != admissionv1.Create {
		return v, err
	}
	s := o.Scheduling
	ask, problem := s.Asks.Of(req.Namespace, pod.Labels, pod.Annotations)
	if problem != "" {
		o.warnOfAsk(v, pod.Annotations, field.NewPath("metadata"), problem)
		return v, nil
	}
	if ask == nil {
		return v, nil
	}
	in := podadmission.Input{
		Pod: pod, Ask: ask, Policies: s.Asks.Policies(req.Namespace, pod.Labels), Settings: s.Settings,
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

// reviewWorkload refuses workloads whose pods would ask for something that cannot be understood, and warns of what no node
// has at the moment. What was there before an update is not refused.
func (o *Options) reviewWorkload(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	if len(req.Object.Raw) == 0 || req.Operation == admissionv1.Delete {
		return v, nil
	}
	meta, path, err := podadmission.Metadata(req.Kind.Kind, req.Object.Raw)
	if err != nil || meta == nil {
		return v, err
	}
	ask, report := requirements.Annotations(meta.Annotations, path, o.Known.Rules)
	if !report.OK() {
		if old, _, err := podadmission.Metadata(req.Kind.Kind, req.OldObject.Raw); err == nil && old != nil && sameAsks(meta.Annotations, old.Annotations) {
			v.Warn(report.Errors[0].Field, rules.RankDefect, "%s", report.Errors[0].ErrorBody())
			return v, nil
		}
		v.Errors = report.Errors
		return v, nil
	}
	v.Warnings = append(v.Warnings, report.Warnings...)
	if whole, problem := o.Scheduling.Asks.Of(req.Namespace, meta.Labels, meta.Annotations); problem != "" {
		o.warnOfAsk(v, meta.Annotations, path, problem)
	} else if whole != nil {
		ask = whole
	}
	o.warnOfNodes(v, path.String(), ask)
	return v, nil
}

// warnOfAsk warns of what keeps pods from any node, whatever the nodes have: mistakes of their annotations at their places, or
// else what is wrong with the request that they name.
func (o *Options) warnOfAsk(v *verdict, annotations map[string]string, path *field.Path, problem string) {
	if _, report := requirements.Annotations(annotations, path, o.Known.Rules); !report.OK() {
		for _, err := range report.Errors {
			v.Warn(err.Field, rules.RankDefect, "%s", err.ErrorBody())
		}
		return
	}
	v.Warn(path.Child("labels").Key(assayv1alpha1.FeatureRequestLabel).String(), rules.RankDefect, "%s", problem)
}

// warnOfNodes warns if no node has what is required.
func (o *Options) warnOfNodes(v *verdict, path string, ask *requirements.Ask) {
	view := o.Scheduling.View
	if view == nil || !view.Synced() || ask.Empty() || len(ask.Required) == 0 {
		return
	}
	a := view.Ask(ask, 0)
	if text := podadmission.Warning(a.Matching, a.Nodes, a.Nearest, a.Lacks); text != "" {
		v.Warn(path, rules.RankUnlikely, "%s", text)
	}
}

// sameAsks reports whether what is asked for has not changed.
func sameAsks(a, b map[string]string) bool {
	for _, key := range askAnnotations {
		if a[key] != b[key] {
			return false
		}
	}
	return true
}
