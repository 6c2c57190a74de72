package webhook

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// SchedulingConfigurationName is the name of the webhook configurations for pods and workloads.
const SchedulingConfigurationName = "assay-scheduling"

// annotatedIn is a CEL expression that is true if the metadata at a path have an annotation that asks for features.
func annotatedIn(metadata string) string {
	return fmt.Sprintf("has(%[1]s.annotations) && (%[2]q in %[1]s.annotations || %[3]q in %[1]s.annotations)",
		metadata, assayv1alpha1.RequiredFeaturesAnnotation, assayv1alpha1.PreferredFeaturesAnnotation)
}

// namesIn returns a CEL expression that is true if a label or annotation of the metadata at a path is below assay.dev/: it may be a
// misspelled one, about which the webhook warns.
func namesIn(metadata string) string {
	return fmt.Sprintf("(has(%[1]s.annotations) && %[1]s.annotations.exists(k, k.startsWith(%[2]q)) || has(%[1]s.labels) && %[1]s.labels.exists(k, k.startsWith(%[2]q)))",
		metadata, assayv1alpha1.GroupName+"/")
}

// SchedulingConfigurations returns the webhooks for pods and workloads that require features. Other pods, and all pods in
// kube-system and in Assay's namespace, are not sent to the webhook. While it is unavailable, all are accepted, and only the
// extender places them.
func SchedulingConfigurations(o ConfigurationOptions) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	elsewhere := elsewhere(o)
	labeled := metav1.LabelSelectorRequirement{
		Key: assayv1alpha1.SchedulingLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{assayv1alpha1.SchedulingLabelEnabled},
	}
	meta := metav1.ObjectMeta{Name: SchedulingConfigurationName}
	asks := admissionregistrationv1.MatchCondition{Name: "asks", Expression: namesIn("object.metadata")}
	silent := admissionregistrationv1.MatchCondition{Name: "does-not-ask", Expression: "!(" + asks.Expression + ")"}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			podHook("asking.pods.assay.dev", o, asks, elsewhere),
			podHook("policy.pods.assay.dev", o, silent, elsewhere, labeled),
		},
	}
	write := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	templates := hook("workloads.assay.dev", o, admissionregistrationv1.Ignore,
		core(write, "apps", "deployments", "statefulsets", "daemonsets", "replicasets"), core(write, "batch", "jobs"))
	templates.MatchConditions = []admissionregistrationv1.MatchCondition{condition("object.spec.template")}
	cron := hook("cronjobs.assay.dev", o, admissionregistrationv1.Ignore, core(write, "batch", "cronjobs"))
	cron.MatchConditions = []admissionregistrationv1.MatchCondition{condition("object.spec.jobTemplate.spec.template")}
	for _, h := range []*admissionregistrationv1.ValidatingWebhook{&templates, &cron} {
		h.NamespaceSelector = o.namespaces(elsewhere)
	}
	return mutating, &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: meta,
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{templates, cron},
	}
}

// condition is true for workloads whose pod template requires features, and for those whose own metadata do, which has no effect and
// causes a warning.
func condition(template string) admissionregistrationv1.MatchCondition {
	meta := template + ".metadata"
	return admissionregistrationv1.MatchCondition{
		Name: "asks", Expression: fmt.Sprintf("has(%s) && (%s) || %s", meta, namesIn(meta), annotatedIn("object.metadata")),
	}
}

// podHook returns the webhook that mutates pods on creation.
func podHook(name string, o ConfigurationOptions, when admissionregistrationv1.MatchCondition, namespaces ...metav1.LabelSelectorRequirement) admissionregistrationv1.MutatingWebhook {
	h := hook(name, o, admissionregistrationv1.Ignore, core([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "", "pods"))
	return mutatingHook(&h, when, o, namespaces...)
}

// mutatingHook returns a webhook as one for mutating admission.
func mutatingHook(h *admissionregistrationv1.ValidatingWebhook, when admissionregistrationv1.MatchCondition, o ConfigurationOptions, namespaces ...metav1.LabelSelectorRequirement) admissionregistrationv1.MutatingWebhook {
	again := admissionregistrationv1.IfNeededReinvocationPolicy
	return admissionregistrationv1.MutatingWebhook{
		Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
		SideEffects: h.SideEffects, TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions,
		ReinvocationPolicy: &again, MatchConditions: []admissionregistrationv1.MatchCondition{when},
		NamespaceSelector: o.namespaces(namespaces...),
	}
}

// namespaces returns the selector of namespaces that meet the requirements and those of Namespaces.
func (o *ConfigurationOptions) namespaces(all ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	out := &metav1.LabelSelector{MatchExpressions: all}
	if o.Namespaces != nil {
		out.MatchLabels = o.Namespaces.MatchLabels
		out.MatchExpressions = append(slices.Clone(all), o.Namespaces.MatchExpressions...)
	}
	return out
}

// elsewhere selects all namespaces but kube-system and Assay's own, which must not depend on the webhook.
func elsewhere(o ConfigurationOptions) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn,
		Values: []string{metav1.NamespaceSystem, o.Namespace},
	}
}

// core returns rules for built-in kinds of Kubernetes.
func core(ops []admissionregistrationv1.OperationType, group string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: ops,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources},
	}
}
