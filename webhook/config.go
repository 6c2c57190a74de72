package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// ConfigurationName is the default name of the configurations of the webhooks for Assay's own kinds.
const ConfigurationName = "assay"

// fieldManager is the field manager of the webhooks in the configurations.
const fieldManager = "assay-webhook"

// DefaultTimeoutSeconds is the webhook timeout of the API server; responses take milliseconds. It is the maximum delay of a write to our
// kinds while the webhook is unavailable.
const DefaultTimeoutSeconds = 2

// earlyTimeoutSeconds is the timeout of the review in mutating admission, after which the API server validates the schema without
// it.
const earlyTimeoutSeconds = 1

// featuresHook is the name of the webhook for NodeFeatures.
const featuresHook = "features.assay.dev"

// ConfigurationOptions configure the address of the webhook and the failure policy.
type ConfigurationOptions struct {
	// Name of the configurations of the webhooks for Assay's own kinds; empty: ConfigurationName.
	Name string
	// Namespace, Service and Port are the address of the webhook; port 443 if 0. URL replaces them if set, for tests.
	Namespace, Service string
	Port               int32
	URL                string
	// CABundle is the CA bundle for the API server.
	CABundle []byte
	// Fail makes the API server reject rules while the webhook is unavailable. Otherwise it accepts them: the CRD schema still
	// rejects the worst errors, and the controller reports the others in the status. NodeFeatures are always accepted, so that
	// nodes can publish; the shipped admission policy protects them without the webhook.
	Fail bool
	// Scheduling also registers the reviews of pods and workloads.
	Scheduling bool
	// Selectors also registers the reviews that add labels of requests to node selectors.
	Selectors bool
	// TimeoutSeconds is the webhook timeout of the API server; DefaultTimeoutSeconds if 0.
	TimeoutSeconds int32
	// Namespaces restricts the reviews of pods and workloads to namespaces with these labels; nil: all.
	Namespaces *metav1.LabelSelector
}

// specChanged is false for updates that do not change the spec. Without has() it would fail for objects without a spec, whose
// review would be skipped.
var specChanged = admissionregistrationv1.MatchCondition{
	Name:       "spec-changed",
	Expression: `request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec`,
}

// Configuration returns the validating webhooks for Assay's own kinds.
func Configuration(o ConfigurationOptions) *admissionregistrationv1.ValidatingWebhookConfiguration {
	rulesPolicy := admissionregistrationv1.Ignore
	if o.Fail {
		rulesPolicy = admissionregistrationv1.Fail
	}
	write := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	rules := hook("rules.assay.dev", o, rulesPolicy,
		on(write, nfdv1alpha1.GroupName, "nodefeaturerules", "nodefeaturegroups"),
		on(write, assayv1alpha1.GroupName, "nodefeatureruletemplates", "nodefeaturerequests", "nodefeatureschedulingpolicies", "nodebaselines"))
	// Labels, annotations and finalizers can be changed without a review: cleanup must not depend on the webhook.
	rules.MatchConditions = []admissionregistrationv1.MatchCondition{specChanged}
	features := hook(featuresHook, o, admissionregistrationv1.Ignore,
		on(append(write, admissionregistrationv1.Delete), nfdv1alpha1.GroupName, "nodefeatures"),
		on(write[:1], assayv1alpha1.GroupName, "nodefeaturesets"))
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration",
		},
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(o.Name, ConfigurationName)},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{rules, features},
	}
}

// EarlyConfiguration returns the webhooks that review Assay's own kinds in mutating admission, which runs before the API server
// validates the schema: users get all errors with suggestions, not only the first schema error. The review never changes an object,
// and the API server goes on without it if it is unavailable.
func EarlyConfiguration(o ConfigurationOptions) *admissionregistrationv1.MutatingWebhookConfiguration {
	validating := Configuration(o)
	out := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
		},
		ObjectMeta: validating.ObjectMeta,
	}
	timeout, ignore, never := min(earlyTimeoutSeconds, cmp.Or(o.TimeoutSeconds, DefaultTimeoutSeconds)), admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy
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
		early.ClientConfig = at(h.ClientConfig, o, path)
		out.Webhooks = append(out.Webhooks, early)
	}
	return out
}

// at returns the configuration of a client for another path of the server.
func at(c admissionregistrationv1.WebhookClientConfig, o ConfigurationOptions, path string) admissionregistrationv1.WebhookClientConfig {
	if o.URL != "" {
		url := o.URL + path
		c.URL = &url
		return c
	}
	service := *c.Service
	service.Path = &path
	c.Service = &service
	return c
}

// byPeople is false for ServiceAccounts: programs that publish features do not read warnings, and nodes publish often.
var byPeople = admissionregistrationv1.MatchCondition{
	Name: "not-by-a-service-account", Expression: `!request.userInfo.username.startsWith('system:serviceaccount:')`,
}

func hook(name string, o ConfigurationOptions, policy admissionregistrationv1.FailurePolicyType, rules ...admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	none, match := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Equivalent
	timeout := cmp.Or(o.TimeoutSeconds, DefaultTimeoutSeconds)
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

// Configurations is the part of client-go's ValidatingWebhookConfigurationInterface that Install uses.
type Configurations interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
}

// MutatingConfigurations is the part of client-go's MutatingWebhookConfigurationInterface that Install uses.
type MutatingConfigurations interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.MutatingWebhookConfiguration, error)
}

// installed lists the configurations that Install updates.
func installed(o ConfigurationOptions) []metav1.Object {
	list := []metav1.Object{Configuration(o), EarlyConfiguration(o)}
	if o.Scheduling {
		mutating, validating := SchedulingConfigurations(o)
		list = append(list, mutating, validating)
	}
	if o.Selectors {
		list = append(list, SelectorConfiguration(o))
	}
	return list
}

// Install updates the webhooks in existing configurations. It does not create them, since a client that can create webhook
// configurations can receive every Secret. It leaves everything else in these objects unchanged. It is idempotent, and every
// replica can call it. Call it only after the server is serving. A configuration that is missing does not keep it from updating the others:
// it returns the generations of those that it has updated.
func Install(ctx context.Context, validating Configurations, mutating MutatingConfigurations, o ConfigurationOptions) (Generations, error) {
	generations := Generations{}
	var errs []error
	for _, object := range installed(o) {
		var err error
		var kind string
		var got metav1.Object
		switch c := object.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			kind = "ValidatingWebhookConfiguration"
			got, err = validating.Patch(ctx, c.Name, types.MergePatchType, webhooksOf(c.Webhooks), metav1.PatchOptions{FieldManager: fieldManager})
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			kind = "MutatingWebhookConfiguration"
			got, err = mutating.Patch(ctx, c.Name, types.MergePatchType, webhooksOf(c.Webhooks), metav1.PatchOptions{FieldManager: fieldManager})
		}
		switch {
		case apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("%w: the installation creates it empty, and the webhook fills it: run `helm upgrade`, or `kubectl apply -k` without Helm", err))
		case err != nil:
			errs = append(errs, fmt.Errorf("fill the %s %s: %w", kind, object.GetName(), err))
		default:
			generations[kind+" "+object.GetName()] = got.GetGeneration()
		}
	}
	return generations, errors.Join(errs...)
}

// Generations are the generations of webhook configurations, by kind and name. A generation grows with each change of the webhooks.
type Generations map[string]int64

// webhooksOf returns a merge patch for the webhooks of a configuration.
func webhooksOf[T any](webhooks []T) []byte {
	data, err := json.Marshal(map[string]any{"webhooks": webhooks})
	if err != nil {
		panic(err) // plain data
	}
	return data
}
