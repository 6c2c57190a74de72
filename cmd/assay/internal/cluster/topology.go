package cluster

import (
	"context"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/topology"
)

func topologyPath() string {
	return "/apis/" + v1alpha2.GroupVersion.String() + "/" + v1alpha2.NodeResourceTopologyResource.Resource
}

// Topologies returns all NodeResourceTopologies. It returns an error for which IsNotFound is true if the cluster does not have the kind.
func (c *Client) Topologies(ctx context.Context) ([]v1alpha2.NodeResourceTopology, error) {
	return list[v1alpha2.NodeResourceTopology](ctx, c, topologyPath(), nil)
}

// Topology returns the NodeResourceTopology of one node.
func (c *Client) Topology(ctx context.Context, node string) (*v1alpha2.NodeResourceTopology, error) {
	return get[v1alpha2.NodeResourceTopology](ctx, c, topologyPath(), node)
}

// TopologyDefinition returns the metadata of the CustomResourceDefinition of NodeResourceTopology.
func (c *Client) TopologyDefinition(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	return get[metav1.PartialObjectMetadata](ctx, c, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		v1alpha2.NodeResourceTopologyResource.GroupResource().String())
}

// KubeletSettings returns the settings with which the kubelet of a node runs. The API server asks the kubelet, for which the user needs the
// right to get nodes/proxy.
func (c *Client) KubeletSettings(ctx context.Context, node string) (*topology.Kubelet, error) {
	code, body, err := c.send(ctx, http.MethodGet, "/api/v1/nodes/"+node+"/proxy/configz", nil, "", nil)
	switch {
	case err != nil:
		return nil, err
	case code != http.StatusOK:
		return nil, refused(code, body)
	}
	return topology.ParseConfigz(body)
}

// PodsOnNode returns the Pods of all namespaces that are bound to a node.
func (c *Client) PodsOnNode(ctx context.Context, node string) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, c, "/api/v1/pods", url.Values{"fieldSelector": {"spec.nodeName=" + node}})
}
