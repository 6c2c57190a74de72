package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/topology"
)

// TopologyOptions configure a TopologyPublisher. The zero value of each field is a useful default, except for Identify.
type TopologyOptions struct {
	// Identify returns the node and the pod of the publisher, as for a Publisher.
	Identify func(context.Context) (Identity, error)
	// Poll is the mean interval between reads of the object's metadata, instead of a watch; 0: a watch.
	Poll time.Duration
	// Observe is called with each event; can be nil.
	Observe func(Event)
	// Clock and Rand are for tests.
	Clock clock.WithTicker
	Rand  func() float64
}

// TopologyPublisher keeps one NodeResourceTopology, which has the name of its Node and is owned by it, equal to the latest content. Like a
// Publisher, it is not safe for concurrent use.
type TopologyPublisher struct {
	keeper[topology.Content, topology.Content]
}

// NewTopology returns a TopologyPublisher that has not read its object yet.
func NewTopology(client *Client, opt TopologyOptions) *TopologyPublisher {
	p := &TopologyPublisher{}
	p.keeper = newKeeper(client, p, common{
		identify: opt.Identify, owners: []Owner{OwnerNode}, observe: opt.Observe, clock: opt.Clock, rand: opt.Rand, poll: opt.Poll,
	})
	return p
}

func (p *TopologyPublisher) name() string { return v1alpha2.NodeResourceTopologyGVK.Kind }

func (p *TopologyPublisher) title(name string) string { return name }

func (p *TopologyPublisher) path(name string) string {
	path := "/apis/" + v1alpha2.GroupVersion.String() + "/" + v1alpha2.NodeResourceTopologyResource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func (p *TopologyPublisher) get(ctx context.Context, name string, cached bool) (*stored[topology.Content], error) {
	var t v1alpha2.NodeResourceTopology
	path := p.path(name)
	if cached {
		path += ofCache
	}
	if err := p.client.do(ctx, http.MethodGet, path, "application/json", "", nil, &t); err != nil {
		return nil, err
	}
	return &stored[topology.Content]{
		metadata: metadataOf(&t.ObjectMeta),
		spec:     topology.Content{TopologyPolicies: t.TopologyPolicies, Zones: t.Zones, Attributes: t.Attributes},
	}, nil
}

func (p *TopologyPublisher) build(_ context.Context, id Identity, c topology.Content) (*stored[topology.Content], error) {
	return &stored[topology.Content]{
		metadata: metadata{
			labels: map[string]string{v1alpha2.ManagedByLabel: v1alpha2.ManagedByAssay},
			owners: p.ownedByNode(id),
		},
		spec: c,
	}, nil
}

// TopologyObject returns the object with this content.
func TopologyObject(name string, c *topology.Content) *v1alpha2.NodeResourceTopology {
	return &v1alpha2.NodeResourceTopology{
		TypeMeta:         metav1.TypeMeta{APIVersion: v1alpha2.GroupVersion.String(), Kind: v1alpha2.NodeResourceTopologyGVK.Kind},
		ObjectMeta:       metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha2.ManagedByLabel: v1alpha2.ManagedByAssay}},
		TopologyPolicies: c.TopologyPolicies, Zones: c.Zones, Attributes: c.Attributes,
	}
}

func (p *TopologyPublisher) create(want *stored[topology.Content], name string) ([]byte, error) {
	object := TopologyObject(name, &want.spec)
	object.Labels, object.OwnerReferences = present(want.labels), want.owners
	body, err := json.Marshal(object)
	if err != nil {
		return nil, errors.Join(errors.New("encode NodeResourceTopology"), err)
	}
	return body, nil
}

func (p *TopologyPublisher) patch(have, want *stored[topology.Content]) ([]byte, error) {
	meta := diffMetadata(&have.metadata, &want.metadata)
	patch := tree{}
	// Lists are replaced as a whole: a merge patch knows no keys in them.
	for key, lists := range map[string][2]any{
		"topologyPolicies": {have.spec.TopologyPolicies, want.spec.TopologyPolicies},
		"zones":            {have.spec.Zones, want.spec.Zones},
		"attributes":       {have.spec.Attributes, want.spec.Attributes},
	} {
		before, err := json.Marshal(lists[0])
		if err != nil {
			return nil, fmt.Errorf("encode patch: %w", err)
		}
		now, err := json.Marshal(lists[1])
		if err != nil {
			return nil, fmt.Errorf("encode patch: %w", err)
		}
		if !bytes.Equal(before, now) {
			patch[key] = json.RawMessage(now)
		}
	}
	if len(meta) == 0 && len(patch) == 0 {
		return nil, nil
	}
	meta["resourceVersion"] = have.resourceVersion
	patch["metadata"] = meta
	return json.Marshal(patch)
}

// What only NodeFeatures need.

func (p *TopologyPublisher) strict(*stored[topology.Content]) bool         { return false }
func (p *TopologyPublisher) pruned() bool                                  { return false }
func (p *TopologyPublisher) unnamed(*stored[topology.Content], error) bool { return false }
func (p *TopologyPublisher) complete(*Event)                               {}
func (p *TopologyPublisher) again() time.Duration                          { return 0 }
func (p *TopologyPublisher) missing() []string                             { return nil }

// NotServed reports whether an error means that the API server has no such kind, or no such object.
func NotServed(err error) bool { return hasCode(err, http.StatusNotFound) }
