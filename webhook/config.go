package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// ConfigurationName is the name of the ValidatingWebhookConfiguration.
const ConfigurationName = "assay"

// fieldManager owns the webhooks of the configurations.
const fieldManager = "assay-webhook"

// timeoutSeconds is the timeout of the API server for a response that takes milliseconds. It is the maximum delay of a write of our
// kinds while the webhook does not answer.
const timeoutSeconds = 2

// earlyTimeoutSeconds is the time that it waits for the review in mutating admission, without which it validates the schema.
const earlyTimeoutSeconds = 1

// featuresHook is the name of the webhook for NodeFeatures.
const featuresHook = "features.assay.dev"

// ConfigurationOptions say where the webhook is and what happens without it.
type ConfigurationOptions struct {
	// Namespace, Service and Port of the webhook; port 443 if 0. URL is used instead of them if set, in tests.
	Namespace, Service string
	Port               int32
	URL                string
	// CABundle is whom the API server trusts.
	CABundle []byte
	// Fail makes the API server refuse rules while the webhook does not answer. Otherwise they are let through: the CRDs
	// still refuse the worst, and the controller reports the rest on the object. NodeFeatures are always let through, so
	// that nodes can publish; the shipped policy guards them without us.
	Fail bool
	// Scheduling registers the reviews of pods and workloads too.
	Scheduling bool
}

// specChanged is false for updates that leave the spec as it is. Without has() it would fail on objects without spec, and the
// review of those would be skipped.
var specChanged = admissionregistrationv1.MatchCondition{
	Name:       "spec-changed",
	Expression: `request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec`,
}

// Configuration returns what tells the API server to ask us, about our own kinds and nothing else.
func Configuration(o ConfigurationOptions) *admissionregistrationv1.ValidatingWebhookConfiguration {
	rulesPolicy := admissionregistrationv1.Ignore
	if o.Fail {
		rulesPolicy = admissionregistrationv1.Fail
	}
	write := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	rules := hook("rules.assay.dev", o, rulesPolicy,
		on(write, nfdv1alpha1.GroupName, "nodefeaturerules", "nodefeaturegroups"),
		on(write, assayv1alpha1.GroupName, "nodefeatureruletemplates", "nodefeaturerequests", "nodefeatureschedulingpolicies"))
	// Labels, annotations and finalizers can be changed without us: who cleans up must not depend on the webhook.
	rules.MatchConditions = []admissionregistrationv1.MatchCondition{specChanged}
	features := hook(featuresHook, o, admissionregistrationv1.Ignore,
		on(append(write, admissionregistrationv1.Delete), nfdv1alpha1.GroupName, "nodefeatures"))
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration",
		},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{rules, features},
	}
}

// EarlyConfiguration registers the review of Assay's own kinds for mutating admission, which runs before the API server validates
// the schema: a user gets all errors and what to write instead, not the first error of the schema. It never changes an object, and
// the API server goes on without it if it does not answer.
func EarlyConfiguration(o ConfigurationOptions) *admissionregistrationv1.MutatingWebhookConfiguration {
	validating := Configuration(o)
	out := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
		},
		ObjectMeta: validating.ObjectMeta,
	}
	timeout, ignore, never := int32(earlyTimeoutSeconds), admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy
	for _, h := range validating.Webhooks {
		early := admissionregistrationv1.MutatingWebhook{
			Name: "early." + h.Name, ClientConfig: h.ClientConfig, MatchPolicy: h.MatchPolicy, SideEffects: h.SideEffects,
			AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: []admissionregistrationv1.MatchCondition{specChanged},
			FailurePolicy: &ignore, TimeoutSeconds: &timeout, ReinvocationPolicy: &never,
		}
		for _, r := range h.Rules {
			r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
			early.Rules = append(early.Rules, r)
		}
		if h.Name == featuresHook {
			early.MatchConditions = append(early.MatchConditions, byPeople)
		}
		path := EarlyReviewPath
		if o.URL != "" {
			url := o.URL + path
			early.ClientConfig.URL = &url
		} else {
			service := *h.ClientConfig.Service
			service.Path = &path
			early.ClientConfig.Service = &service
		}
		out.Webhooks = append(out.Webhooks, early)
	}
	return out
}

// byPeople is false for ServiceAccounts: programs that publish features do not read hints, and nodes publish often.
var byPeople = admissionregistrationv1.MatchCondition{
	Name: "not-by-a-service-account", Expression: `!request.userInfo.username.startsWith('system:serviceaccount:')`,
}

func hook(name string, o ConfigurationOptions, policy admissionregistrationv1.FailurePolicyType, rules ...admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	none, timeout, match := admissionregistrationv1.SideEffectClassNone, int32(timeoutSeconds), admissionregistrationv1.Equivalent
	client := admissionregistrationv1.WebhookClientConfig{CABundle: o.CABundle}
	if o.URL != "" {
		url := o.URL + ReviewPath
		client.URL = &url
	} else {
		path, port := ReviewPath, o.Port
		if port == 0 {
			port = 443
		}
		client.Service = &admissionregistrationv1.ServiceReference{Namespace: o.Namespace, Name: o.Service, Path: &path, Port: &port}
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    name,
		ClientConfig:            client,
		Rules:                   rules,
		FailurePolicy:           &policy,
		MatchPolicy:             &match,
		SideEffects:             &none,
		TimeoutSeconds:          &timeout,
		AdmissionReviewVersions: []string{"v1"},
	}
}

func on(ops []admissionregistrationv1.OperationType, group string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: ops,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1alpha1"}, Resources: resources},
	}
}

// Configurations is the part of a client that Install needs; client-go's ValidatingWebhookConfigurationInterface is one.
type Configurations interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
}

// MutatingConfigurations is Configurations for mutating admission; client-go's MutatingWebhookConfigurationInterface is one.
type MutatingConfigurations interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.MutatingWebhookConfiguration, error)
}

// installed lists the configurations that Install fills.
func installed(o ConfigurationOptions) []metav1.Object {
	list := []metav1.Object{Configuration(o), EarlyConfiguration(o)}
	if o.Scheduling {
		mutating, validating := SchedulingConfigurations(o)
		list = append(list, mutating, validating)
	}
	return list
}

// Install fills the webhooks of the configurations, which exist already: a client that may create them may have every Secret sent to
// it. Everything else in these objects belongs to those who created them. It is idempotent, and all replicas may do it. Call it
// only once the server answers.
func Install(ctx context.Context, validating Configurations, mutating MutatingConfigurations, o ConfigurationOptions) error {
	for _, object := range installed(o) {
		var err error
		switch c := object.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			_, err = validating.Patch(ctx, c.Name, types.MergePatchType, webhooksOf(c.Webhooks), metav1.PatchOptions{FieldManager: fieldManager})
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			_, err = mutating.Patch(ctx, c.Name, types.MergePatchType, webhooksOf(c.Webhooks), metav1.PatchOptions{FieldManager: fieldManager})
		}
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: the installation creates it empty, and the webhook fills it: run `helm upgrade`, or `kubectl apply -k` without Helm", err)
		}
		if err != nil {
			return fmt.Errorf("fill the webhook configuration %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// webhooksOf returns a merge patch for the webhooks of a configuration.
func webhooksOf[T any](webhooks []T) []byte {
	data, err := json.Marshal(map[string]any{"webhooks": webhooks})
	if err != nil {
		panic(err) // plain data
	}
	return data
}
