package cluster

import (
	"context"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

func assayPath(resource string) string {
	return "/apis/" + assayv1alpha1.GroupVersion.String() + "/" + resource
}

// Pod returns one Pod.
func (c *Client) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return get[corev1.Pod](ctx, c, within("/api/v1", namespace, "pods"), name)
}

// Object returns one object in a namespace.
func (c *Client) Object(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (map[string]any, error) {
	out, err := get[map[string]any](ctx, c, pathOf(of, namespace), name)
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// NamesIn returns the names of the objects of a resource in a namespace. It only reads their metadata.
func (c *Client) NamesIn(ctx context.Context, of schema.GroupVersionResource, namespace string) ([]string, error) {
	return c.names(ctx, pathOf(of, namespace))
}

// pathOf returns the path of a resource in a namespace.
func pathOf(of schema.GroupVersionResource, namespace string) string {
	api := "/apis/" + of.GroupVersion().String()
	if of.Group == "" {
		api = "/api/" + of.Version
	}
	return within(api, namespace, of.Resource)
}

// DeviceClasses returns all DeviceClasses; none if the cluster does not serve them.
func (c *Client) DeviceClasses(ctx context.Context) ([]resourcev1.DeviceClass, error) {
	out, err := list[resourcev1.DeviceClass](ctx, c, "/apis/"+resourcev1.SchemeGroupVersion.String()+"/deviceclasses", nil)
	if IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

// Claim returns what a ResourceClaim, or a ResourceClaimTemplate if template is set, requests.
func (c *Client) Claim(ctx context.Context, namespace, name string, template bool) (*resourcev1.ResourceClaimSpec, error) {
	api := within("/apis/"+resourcev1.SchemeGroupVersion.String(), namespace, "resourceclaims")
	if template {
		o, err := get[resourcev1.ResourceClaimTemplate](ctx, c, strings.TrimSuffix(api, "s")+"templates", name)
		if err != nil {
			return nil, err
		}
		return &o.Spec.Spec, nil
	}
	o, err := get[resourcev1.ResourceClaim](ctx, c, api, name)
	if err != nil {
		return nil, err
	}
	return &o.Spec, nil
}

// PendingPods returns the Pods of all namespaces that are not scheduled yet.
func (c *Client) PendingPods(ctx context.Context) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, c, "/api/v1/pods", url.Values{"fieldSelector": {"spec.nodeName="}})
}

// PodsOf returns the Pods of a namespace that a label selector selects.
func (c *Client) PodsOf(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, c, within("/api/v1", namespace, "pods"), selecting(selector))
}

// Namespaces returns all Namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	return list[corev1.Namespace](ctx, c, "/api/v1/namespaces", nil)
}

// Requests returns all NodeFeatureRequests. It returns none if the CRD does not exist.
func (c *Client) Requests(ctx context.Context) ([]assayv1alpha1.NodeFeatureRequest, error) {
	return listIfAny[assayv1alpha1.NodeFeatureRequest](ctx, c, assayPath("nodefeaturerequests"))
}

// Request returns one NodeFeatureRequest.
func (c *Client) Request(ctx context.Context, namespace, name string) (*assayv1alpha1.NodeFeatureRequest, error) {
	return get[assayv1alpha1.NodeFeatureRequest](ctx, c, within("/apis/"+assayv1alpha1.GroupVersion.String(), namespace, "nodefeaturerequests"), name)
}

// Policies returns all NodeFeatureSchedulingPolicies. It returns none if the CRD does not exist.
func (c *Client) Policies(ctx context.Context) ([]assayv1alpha1.NodeFeatureSchedulingPolicy, error) {
	return listIfAny[assayv1alpha1.NodeFeatureSchedulingPolicy](ctx, c, assayPath("nodefeatureschedulingpolicies"))
}

// Shapes returns all NodeShapes.
func (c *Client) Shapes(ctx context.Context) ([]assayv1alpha1.NodeShape, error) {
	return list[assayv1alpha1.NodeShape](ctx, c, assayPath(assayv1alpha1.NodeShapeResource.Resource), nil)
}

// NodePools returns the NodePools of Karpenter, decoded as T. It returns false if the cluster does not have the kind.
func NodePools[T any](ctx context.Context, c *Client) ([]T, bool, error) {
	out, err := list[T](ctx, c, "/apis/karpenter.sh/v1/nodepools", nil)
	if IsNotFound(err) {
		return nil, false, nil
	}
	return out, err == nil, err
}

// MachineDeployments returns the MachineDeployments of Cluster API in a namespace, decoded as T. It returns none if the cluster does not
// have the kind: Cluster API often runs in another one.
func MachineDeployments[T any](ctx context.Context, c *Client, namespace string) ([]T, error) {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		out, err := list[T](ctx, c, within("/apis/cluster.x-k8s.io/"+version, namespace, "machinedeployments"), nil)
		if !IsNotFound(err) {
			return out, err
		}
	}
	return nil, nil
}
