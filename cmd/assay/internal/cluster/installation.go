package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// within returns the path of a resource in a namespace, or in all namespaces if namespace is empty.
func within(api, namespace, resource string) string {
	if namespace != "" {
		api += "/namespaces/" + url.PathEscape(namespace)
	}
	return api + "/" + resource
}

func selecting(selector string) url.Values { return url.Values{"labelSelector": {selector}} }

// Deployments returns the Deployments that a label selector selects. An empty namespace means all namespaces.
func (c *Client) Deployments(ctx context.Context, namespace, selector string) ([]appsv1.Deployment, error) {
	return list[appsv1.Deployment](ctx, c, within("/apis/apps/v1", namespace, "deployments"), selecting(selector))
}

// DaemonSets returns the DaemonSets that a label selector selects. An empty namespace means all namespaces.
func (c *Client) DaemonSets(ctx context.Context, namespace, selector string) ([]appsv1.DaemonSet, error) {
	return list[appsv1.DaemonSet](ctx, c, within("/apis/apps/v1", namespace, "daemonsets"), selecting(selector))
}

// ValidatingWebhooks returns all ValidatingWebhookConfigurations.
func (c *Client) ValidatingWebhooks(ctx context.Context) ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	return list[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, c, path, nil)
}

// MutatingWebhooks returns all MutatingWebhookConfigurations.
func (c *Client) MutatingWebhooks(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	const path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	return list[admissionregistrationv1.MutatingWebhookConfiguration](ctx, c, path, nil)
}

// HasMutatingPolicy reports whether the cluster has a MutatingAdmissionPolicy and a binding, both with this name.
func (c *Client) HasMutatingPolicy(ctx context.Context, name string) (bool, error) {
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		_, err := get[metav1.PartialObjectMetadata](ctx, c, "/apis/admissionregistration.k8s.io/v1/"+resource, name)
		if IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// NodeWrites returns the policy that limits what the controller writes on Nodes.
func (c *Client) NodeWrites(ctx context.Context) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	return get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, c, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "assay-node-writes")
}

// ValidatingPolicies returns all ValidatingAdmissionPolicies.
func (c *Client) ValidatingPolicies(ctx context.Context) ([]admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	const path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	return list[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, c, path, nil)
}

// ValidatingBindings returns all ValidatingAdmissionPolicyBindings.
func (c *Client) ValidatingBindings(ctx context.Context) ([]admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	const path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	return list[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, c, path, nil)
}

// Allowed reports whether a user may send a request, by a SubjectAccessReview.
func (c *Client) Allowed(ctx context.Context, user string, what authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
	if namespace, _, ok := strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":"); ok {
		review.Spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	data, err := json.Marshal(&review)
	if err != nil {
		return false, err
	}
	code, body, err := c.send(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, "application/json", data)
	switch {
	case err != nil:
		return false, err
	case code >= http.StatusMultipleChoices:
		return false, refused(code, body)
	}
	err = json.Unmarshal(body, &review)
	return review.Status.Allowed, err
}

// LacksPolicy reports whether a cluster has no ValidatingAdmissionPolicy, or no binding, with a name. Without permission to read them it is
// taken to have them.
func (c *Client) LacksPolicy(ctx context.Context, name string) bool {
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		if _, err := get[metav1.PartialObjectMetadata](ctx, c, "/apis/admissionregistration.k8s.io/v1/"+resource, name); IsNotFound(err) {
			return true
		}
	}
	return false
}

// Definition returns a CustomResourceDefinition.
func (c *Client) Definition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	out, err := get[map[string]any](ctx, c, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: *out}, nil
}

// FeatureObjects returns the metadata of all NodeFeatures that refer to a node.
func (c *Client) FeatureObjects(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	return c.metadata(ctx, nfdPath("nodefeatures"))
}

// AllPodsOf returns the Pods of a namespace that the selector of a workload selects.
func (c *Client) AllPodsOf(ctx context.Context, namespace string, selector *metav1.LabelSelector) ([]corev1.Pod, error) {
	return c.PodsOf(ctx, namespace, metav1.FormatLabelSelector(selector))
}

// Refusal is the response of the API server to a rejected request.
type Refusal struct {
	Code    int
	Message string
}

// DryRunRule sends a NodeFeatureRule as a dry run: admission reviews it, and it is not stored. It returns the warnings of
// admission, and a refusal unless the rule would be stored. The error is about the connection.
func (c *Client) DryRunRule(ctx context.Context, rule any) (*Refusal, []string, error) {
	data, err := json.Marshal(rule)
	if err != nil {
		return nil, nil, err
	}
	query := url.Values{"dryRun": {metav1.DryRunAll}, "fieldManager": {"assay-doctor"}}
	a, err := c.exchange(ctx, http.MethodPost, nfdPath("nodefeaturerules"), query, "application/json", data)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	headers, _ := utilnet.ParseWarningHeaders(a.header.Values("Warning"))
	for _, h := range headers {
		warnings = append(warnings, h.Text)
	}
	if a.code < http.StatusMultipleChoices {
		return nil, warnings, nil
	}
	var status metav1.Status
	if json.Unmarshal(a.body, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(a.body))
	}
	return &Refusal{Code: a.code, Message: status.Message}, warnings, nil
}

// Worker is the state of the worker on a node.
type Worker struct {
	// Fault is the problem of the worker, or "". Fix is a command that shows more.
	Fault, Fix string
	// Ready is set if the worker runs anyway, and what it publishes is missing.
	Ready bool
}
