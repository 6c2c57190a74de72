package publish

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/topology"
)

const ownTopology = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/n1"

// zonesWith returns a topology with one zone that has this many CPUs available.
func zonesWith(available string) topology.Content {
	return topology.Content{
		TopologyPolicies: []string{"None"},
		Zones: []v1alpha2.Zone{{
			Name: "node-0", Type: "Node", Costs: []v1alpha2.Cost{{Name: "node-0", Value: 10}},
			Resources: []v1alpha2.Resource{{
				Name: "cpu", Capacity: resource.MustParse("8"), Allocatable: resource.MustParse("6"), Available: resource.MustParse(available),
			}},
		}},
		Attributes: []v1alpha2.Attribute{{Name: "topologyManagerPolicy", Value: "none"}},
	}
}

func newTopology(t *testing.T, s *server) *TopologyPublisher {
	return NewTopology(s.client(t), TopologyOptions{Identify: func(context.Context) (Identity, error) { return n1, nil }})
}

func publishTopology(t *testing.T, p *TopologyPublisher, c topology.Content) Change {
	t.Helper()
	change, err := p.Publish(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestTopologyIsCreatedAndPatched(t *testing.T) {
	s := newServer(t)
	p := newTopology(t, s)
	if got := publishTopology(t, p, zonesWith("6")); got != Created {
		t.Errorf("change = %q", got)
	}
	want := map[string]any{
		"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
		"metadata": map[string]any{
			"name": "n1", "uid": "uid-1", "resourceVersion": "1", "generation": 1.0,
			"labels":          map[string]any{"app.kubernetes.io/managed-by": "assay"},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}},
		},
		"topologyPolicies": []any{"None"},
		"zones": []any{map[string]any{
			"name": "node-0", "type": "Node", "costs": []any{map[string]any{"name": "node-0", "value": 10.0}},
			"resources": []any{map[string]any{"name": "cpu", "capacity": "8", "allocatable": "6", "available": "6"}},
		}},
		"attributes": []any{map[string]any{"name": "topologyManagerPolicy", "value": "none"}},
	}
	if diff := cmp.Diff(want, s.get(ownTopology)); diff != "" {
		t.Error(diff)
	}
	s.took()
	if got := publishTopology(t, p, zonesWith("6")); got != Unchanged || len(s.took()) > 0 {
		t.Errorf("change = %q, or requests without a change", got)
	}
	if got := publishTopology(t, p, zonesWith("2")); got != Patched {
		t.Errorf("change = %q", got)
	}
	zone := s.get(ownTopology)["zones"].([]any)[0].(map[string]any)
	if got := zone["resources"].([]any)[0].(map[string]any)["available"]; got != "2" {
		t.Errorf("available = %v", got)
	}
	s.took()
	// A restarted publisher reads the object and writes nothing.
	if got := publishTopology(t, newTopology(t, s), zonesWith("2")); got != Unchanged {
		t.Errorf("change after a restart = %q", got)
	}
	if diff := cmp.Diff([]string{"GET " + ownTopology}, s.took()); diff != "" {
		t.Error(diff)
	}
}

// TestTopologyOfNFDIsTakenOver: the updater's owner is its Namespace; deleting it must not delete the object.
func TestTopologyOfNFDIsTakenOver(t *testing.T) {
	s := newServer(t)
	s.set(ownTopology, map[string]any{
		"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
		"metadata": map[string]any{
			"name": "n1", "labels": map[string]any{"kept": "yes"},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "node-feature-discovery", "uid": "other"}},
		},
		"topologyPolicies": []any{"None"},
		"zones":            []any{map[string]any{"name": "node-1", "type": "Node"}, map[string]any{"name": "node-0", "type": "Node"}},
		"attributes":       []any{map[string]any{"name": "theirs", "value": "x"}},
	})
	if got := publishTopology(t, newTopology(t, s), zonesWith("6")); got != Patched {
		t.Errorf("change = %q", got)
	}
	object := s.get(ownTopology)
	meta := object["metadata"].(map[string]any)
	owners := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}}
	if diff := cmp.Diff(owners, meta["ownerReferences"]); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"kept": "yes", "app.kubernetes.io/managed-by": "assay"}, meta["labels"]); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if zones, attributes := object["zones"].([]any), object["attributes"].([]any); len(zones) != 1 || len(attributes) != 1 {
		t.Errorf("zones %v, attributes %v", zones, attributes)
	}
}

// TestIdleTopologySendsOneRequestInAQuarterOfAnHour: without a watch, the object is read instead.
func TestIdleTopologySendsOneRequestInAQuarterOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		client, err := NewClient(&Config{Server: "http://server", Transport: net})
		if err != nil {
			t.Fatal(err)
		}
		p := NewTopology(client, TopologyOptions{
			Poll: 15 * time.Minute, Rand: func() float64 { return 0.5 },
			Identify: func(context.Context) (Identity, error) { return n1, nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		contents, done := make(chan topology.Content, 1), make(chan struct{})
		go func() { p.Run(ctx, contents); close(done) }()
		contents <- zonesWith("6")
		synctest.Wait()
		before := len(net.sent())
		time.Sleep(14 * time.Minute)
		synctest.Wait()
		if sent := net.sent()[before:]; len(sent) > 0 {
			t.Errorf("requests while idle: %v", sent)
		}
		net.remove(ownTopology)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if net.get(ownTopology) == nil {
			t.Error("the deleted object was not created again")
		}
		for _, c := range net.sent() {
			if c.method == "WATCH" {
				t.Error("a watch was opened")
			}
		}
		cancel()
		<-done
	})
}

// TestWithoutTheDefinition: the API server answers 404 to the write as well, and the publisher tries again later.
func TestWithoutTheDefinition(t *testing.T) {
	s := newServer(t)
	s.setRefuse(http.StatusNotFound)
	p := newTopology(t, s)
	if _, err := p.Publish(t.Context(), zonesWith("6")); !NotServed(err) {
		t.Errorf("error %v", err)
	}
	s.setRefuse(0)
	if got := publishTopology(t, p, zonesWith("6")); got != Created {
		t.Errorf("change = %q", got)
	}
}
