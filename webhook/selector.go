package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
)

// SelectorConfigurationName is the name of the webhook configuration for node selectors of requests.
const SelectorConfigurationName = "assay-feature-requests"

// selectors returns the reviewers of SelectorPath.
func selectors(o *Options) map[resource]reviewer {
	if o.Request == nil {
		return nil
	}
	return map[resource]reviewer{{"", "pods"}: o.selectPod, {"apps", "daemonsets"}: o.selectTemplate, {"batch", "jobs"}: o.selectTemplate}
}

// template is the part of a pod or its template that node selectors depend on.
type template struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		NodeName     string            `json:"nodeName"`
		NodeSelector map[string]string `json:"nodeSelector"`
	} `json:"spec"`
}

// request returns the name of the request that pods name, none or one.
func (t *template) request() []string {
	if name, ok := t.Metadata.Labels[assayv1alpha1.FeatureRequestLabel]; ok {
		return []string{name}
	}
	return nil
}

// workload is the part of a DaemonSet or Job that has the template.
type workload struct {
	Spec struct {
		Template template `json:"template"`
	} `json:"spec"`
}

// selectPod adds the label of the request that a pod names to its node selector.
func (o *Options) selectPod(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	pod, err := decodeOne[template](req.Object.Raw)
	if err != nil || pod == nil || req.Operation != admissionv1.Create || pod.Spec.NodeName != "" {
		return &verdict{}, err
	}
	return o.selects(ctx, req.Namespace, "/spec/nodeSelector", nil, pod)
}

// selectTemplate does the same for the template of a DaemonSet or Job: the DaemonSet controller, and queues of Jobs, decide by the
// template before there is a pod.
func (o *Options) selectTemplate(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	now, err := decodeOne[workload](req.Object.Raw)
	if err != nil || now == nil || req.Operation == admissionv1.Update && req.Resource.Resource == "jobs" {
		return &verdict{}, err // the template of a Job cannot be changed
	}
	var before []string
	if old, err := decodeOne[workload](req.OldObject.Raw); err == nil && old != nil {
		before = old.Spec.Template.request()
	}
	return o.selects(ctx, req.Namespace, "/spec/template/spec/nodeSelector", before, &now.Spec.Template)
}

// selects changes the node selector at a path. before is the request that the pods named before.
func (o *Options) selects(ctx context.Context, namespace, path string, before []string, t *template) (*verdict, error) {
	add, remove := map[string]string{}, []string{}
	for _, name := range before {
		remove = append(remove, requirements.LabelOf(namespace, name))
	}
	for _, name := range t.request() {
		without, err := o.withoutLabel(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		if label := requirements.LabelOf(namespace, name); without {
			remove = append(remove, label)
		} else {
			add[label] = "true"
		}
	}
	v := &verdict{}
	if steps := podadmission.Select(path, t.Spec.NodeSelector, add, remove); len(steps) > 0 {
		var err error
		if v.patch, err = json.Marshal(steps); err != nil {
			return nil, fmt.Errorf("write the patch: %w", err)
		}
	}
	return v, nil
}

// withoutLabel reports whether nodes get no label for a request. Pods wait for one that does not exist yet.
func (o *Options) withoutLabel(ctx context.Context, namespace, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	request, err := o.Request(ctx, namespace, name)
	if err != nil || request == nil {
		return false, err
	}
	return requirements.WithoutLabel(request) != "", nil
}

// SelectorConfiguration returns the webhooks that add the labels of requests to node selectors, for clusters without
// MutatingAdmissionPolicies. The API server calls them only for objects that name a request, and rejects these while the webhook is
// unavailable: their pods would start on nodes that do not meet the requirements.
func SelectorConfiguration(o ConfigurationOptions) *admissionregistrationv1.MutatingWebhookConfiguration {
	create, update := admissionregistrationv1.Create, admissionregistrationv1.Update
	named := func(template string) string {
		return fmt.Sprintf("has(%[1]s.metadata) && has(%[1]s.metadata.labels) && %[2]q in %[1]s.metadata.labels", template, assayv1alpha1.FeatureRequestLabel)
	}
	pods := hook("pods.requests.assay.dev", o, admissionregistrationv1.Fail, core([]admissionregistrationv1.OperationType{create}, "", "pods"))
	templates := hook("templates.requests.assay.dev", o, admissionregistrationv1.Fail,
		core([]admissionregistrationv1.OperationType{create, update}, "apps", "daemonsets"),
		core([]admissionregistrationv1.OperationType{create}, "batch", "jobs"))
	out := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: SelectorConfigurationName},
	}
	for _, h := range []struct {
		*admissionregistrationv1.ValidatingWebhook
		when string
	}{
		{&pods, named("object")},
		{&templates, named("object.spec.template") + " || request.operation == 'UPDATE' && " + named("oldObject.spec.template")},
	} {
		h.ClientConfig = at(h.ClientConfig, o, SelectorPath)
		out.Webhooks = append(out.Webhooks, mutatingHook(h.ValidatingWebhook, admissionregistrationv1.MatchCondition{Name: "asks", Expression: h.when}, o, elsewhere(o)))
	}
	return out
}
