package cluster

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/internal/nodefeature"
)

// Rules returns all NodeFeatureRules.
func (c *Client) Rules(ctx context.Context) ([]nfdv1alpha1.NodeFeatureRule, error) {
	return list[nfdv1alpha1.NodeFeatureRule](ctx, c, nfdPath("nodefeaturerules"), nil)
}

// Rule returns one NodeFeatureRule.
func (c *Client) Rule(ctx context.Context, name string) (*nfdv1alpha1.NodeFeatureRule, error) {
	return get[nfdv1alpha1.NodeFeatureRule](ctx, c, nfdPath("nodefeaturerules"), name)
}

// Groups returns all NodeFeatureGroups. It returns none if the CRD does not exist, as in older versions of NFD.
func (c *Client) Groups(ctx context.Context) ([]nfdv1alpha1.NodeFeatureGroup, error) {
	return listIfAny[nfdv1alpha1.NodeFeatureGroup](ctx, c, nfdPath("nodefeaturegroups"))
}

// Templates returns all NodeFeatureRuleTemplates. It returns none if the CRD does not exist, as with NFD.
func (c *Client) Templates(ctx context.Context) ([]assayv1alpha1.NodeFeatureRuleTemplate, error) {
	return listIfAny[assayv1alpha1.NodeFeatureRuleTemplate](ctx, c, assayPath("nodefeatureruletemplates"))
}

// Template returns one NodeFeatureRuleTemplate, or nil if it does not exist.
func (c *Client) Template(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
	out, err := get[assayv1alpha1.NodeFeatureRuleTemplate](ctx, c, assayPath("nodefeatureruletemplates"), name)
	if IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

// Baselines returns all NodeBaselines.
func (c *Client) Baselines(ctx context.Context) ([]assayv1alpha1.NodeBaseline, error) {
	return list[assayv1alpha1.NodeBaseline](ctx, c, assayPath(assayv1alpha1.NodeBaselineResource.Resource), nil)
}

// Version returns the version of the API server, such as v1.36.3.
func (c *Client) Version(ctx context.Context) (string, error) {
	var v version.Info
	err := c.read(ctx, "/version", nil, &v)
	return v.GitVersion, err
}

// Features returns the NodeFeatures of one node, or of all nodes if node is empty, with the features of their sets. Own is Assay's namespace.
// A NodeFeature whose sets are missing has a featuresets.MissingError in its features.
func (c *Client) Features(ctx context.Context, own, node string) ([]nodefeature.NodeFeature, error) {
	query := url.Values{}
	if node != "" {
		query.Set("labelSelector", nfdv1alpha1.NodeNameLabel+"="+node)
	}
	out, err := list[nodefeature.NodeFeature](ctx, c, nfdPath("nodefeatures"), query)
	if err != nil {
		return nil, err
	}
	return out, c.resolve(ctx, own, out)
}

// parallel is the number of NodeFeatureSets that are read at once.
const parallel = 8

// resolve adds the features of their sets to NodeFeatures.
func (c *Client) resolve(ctx context.Context, own string, all []nodefeature.NodeFeature) error {
	names := map[string]bool{}
	for i := range all {
		if all[i].Namespace == own {
			for _, name := range all[i].Spec.FeatureSets {
				names[name] = true
			}
		}
	}
	store := featuresets.New(own)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	path := within("/apis/"+assayv1alpha1.GroupVersion.String(), own, assayv1alpha1.NodeFeatureSetResource.Resource)
	for name := range names {
		group.Go(func() error {
			set, err := get[assayv1alpha1.NodeFeatureSet](ctx, c, path, name)
			if err == nil {
				store.Put(set)
			} else if IsNotFound(err) {
				err = nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range all {
		f, missing := store.Resolve(&all[i])
		if len(missing) > 0 {
			all[i].Spec.Features.Err = &featuresets.MissingError{Sets: missing}
		} else {
			all[i] = *f
		}
	}
	return nil
}

// Node returns one Node.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return get[corev1.Node](ctx, c, "/api/v1/nodes", name)
}

// Nodes returns the Nodes that a label selector selects, or all if it is empty.
func (c *Client) Nodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	return list[corev1.Node](ctx, c, "/api/v1/nodes", query)
}

// ResourceSlices returns the ResourceSlices of one node and those whose devices can be of any, or all if node is empty. The error is
// resourceslice.ErrNotServed if the cluster does not serve them.
func (c *Client) ResourceSlices(ctx context.Context, node string) ([]resourcev1.ResourceSlice, error) {
	queries := []url.Values{nil}
	if node != "" {
		of := func(name string) url.Values {
			return url.Values{"fieldSelector": {resourcev1.ResourceSliceSelectorNodeName + "=" + name}}
		}
		queries = []url.Values{of(node), of("")}
	}
	out := []resourcev1.ResourceSlice{} // that there are none is known then
	for _, query := range queries {
		items, err := list[resourcev1.ResourceSlice](ctx, c, "/apis/"+resourcev1.SchemeGroupVersion.String()+"/resourceslices", query)
		if IsNotFound(err) {
			return nil, resourceslice.ErrNotServed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
	}
	return out, nil
}

// DeviceTaintRules returns all DeviceTaintRules; none if the cluster does not serve them, as before Kubernetes 1.37.
func (c *Client) DeviceTaintRules(ctx context.Context) ([]resourcev1.DeviceTaintRule, error) {
	out, err := list[resourcev1.DeviceTaintRule](ctx, c, "/apis/"+resourcev1.SchemeGroupVersion.String()+"/devicetaintrules", nil)
	if IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

// ClaimedResources returns the extended resources that DeviceClasses claim, with the names of the classes; none if the cluster does not
// serve DeviceClasses.
func (c *Client) ClaimedResources(ctx context.Context) (map[string]string, error) {
	classes, err := c.DeviceClasses(ctx)
	return resourceslice.Claimed(classes), err
}

// Names returns the names of Nodes or NodeFeatureRules. It only reads their metadata.
func (c *Client) Names(ctx context.Context, resource string) ([]string, error) {
	path := nfdPath(resource)
	if resource == "nodes" {
		path = "/api/v1/nodes"
	}
	return c.names(ctx, path)
}

func (c *Client) names(ctx context.Context, path string) ([]string, error) {
	items, err := c.metadata(ctx, path)
	out := make([]string, len(items))
	for i := range items {
		out[i] = items[i].Name
	}
	return out, err
}

func (c *Client) metadata(ctx context.Context, path string) ([]metav1.PartialObjectMetadata, error) {
	return list[metav1.PartialObjectMetadata](ctx, c, path, nil)
}

func nfdPath(resource string) string {
	return "/apis/" + nfdv1alpha1.GroupVersion.String() + "/" + resource
}

// SampleFeatures returns some NodeFeatures, to complete the names of features.
func (c *Client) SampleFeatures(ctx context.Context, own string) ([]nodefeature.NodeFeature, error) {
	var page struct {
		Items []nodefeature.NodeFeature `json:"items"`
	}
	if err := c.read(ctx, nfdPath("nodefeatures"), url.Values{"limit": {"10"}}, &page); err != nil {
		return nil, err
	}
	return page.Items, c.resolve(ctx, own, page.Items)
}

// ConfigMap returns one ConfigMap.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return get[corev1.ConfigMap](ctx, c, within("/api/v1", namespace, "configmaps"), name)
}

// NodeEvents returns the Events of a Node.
func (c *Client) NodeEvents(ctx context.Context, node string) ([]corev1.Event, error) {
	return c.EventsOf(ctx, "Node", "", node)
}

// EventsOf returns the Events of an object, of any namespace if namespace is empty.
func (c *Client) EventsOf(ctx context.Context, kind, namespace, name string) ([]corev1.Event, error) {
	query := url.Values{"fieldSelector": {"involvedObject.kind=" + kind + ",involvedObject.name=" + name}}
	return list[corev1.Event](ctx, c, within("/api/v1", namespace, "events"), query)
}

// List returns all objects of a resource, decoded as T. It returns an error for which IsNotFound is true if the cluster does not have the
// kind.
func List[T any](ctx context.Context, c *Client, resource schema.GroupVersionResource) ([]T, error) {
	return list[T](ctx, c, "/apis/"+resource.GroupVersion().String()+"/"+resource.Resource, nil)
}

// EventsOfNodes returns the Events of all Nodes with a reason.
func (c *Client) EventsOfNodes(ctx context.Context, reason string) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, c, "/api/v1/events", url.Values{"fieldSelector": {"involvedObject.kind=Node,reason=" + reason}})
}

// EventSource is the component that Assay's programs name in Events.
const EventSource = "assay-controller"

// EventsFrom returns the Events of a component.
func (c *Client) EventsFrom(ctx context.Context, component string) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, c, "/api/v1/events", url.Values{"fieldSelector": {"source=" + component}})
}

// Warnings returns all Events of the type Warning.
func (c *Client) Warnings(ctx context.Context) ([]corev1.Event, error) {
	return list[corev1.Event](ctx, c, "/api/v1/events", url.Values{"fieldSelector": {"type=" + corev1.EventTypeWarning}})
}

// NodeEvent returns the message of the latest event of a Node with the given reason and with part in its message. It returns "" if
// no event matches or if events cannot be read.
func (c *Client) NodeEvent(ctx context.Context, node, reason, part string) string {
	query := url.Values{"fieldSelector": {"involvedObject.kind=Node,reason=" + reason + ",involvedObject.name=" + node}}
	events, err := list[corev1.Event](ctx, c, "/api/v1/events", query)
	if err != nil {
		return ""
	}
	var newest *corev1.Event
	for i := range events {
		e := &events[i]
		if strings.Contains(e.Message, part) && (newest == nil || newest.CreationTimestamp.Before(&e.CreationTimestamp)) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Message
}

// Secret returns one Secret.
func (c *Client) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return get[corev1.Secret](ctx, c, within("/api/v1", namespace, "secrets"), name)
}

// BuiltInName is the name of the ConfigMap in which the controller publishes its built-in rules. It is repeated here because
// importing controller/builtin would double the startup time of this program.
const BuiltInName = "assay-builtin-rules"

// BuiltIn returns the built-in rules of the controller in a namespace. It returns none if the ConfigMap does not exist. Of sensitive rules
// it returns only the names.
func (c *Client) BuiltIn(ctx context.Context, namespace string) ([]nfdv1alpha1.NodeFeatureRule, error) {
	m, err := c.ConfigMap(ctx, namespace, BuiltInName)
	switch {
	case IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return BuiltIn(m), nil
}

// BuiltIn returns the rules in the ConfigMap.
func BuiltIn(m *corev1.ConfigMap) []nfdv1alpha1.NodeFeatureRule {
	var list []struct {
		Name string                           `json:"name"`
		Spec *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	}
	if json.Unmarshal([]byte(m.Data["rules"]), &list) != nil {
		return nil
	}
	out := make([]nfdv1alpha1.NodeFeatureRule, len(list))
	for i, item := range list {
		out[i].Name = item.Name
		if item.Spec != nil {
			out[i].Spec = *item.Spec
		}
	}
	return out
}
