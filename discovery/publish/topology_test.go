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

// runTopology runs a publisher on a model of the API server until the test ends, in a bubble of synctest.
func runTopology(t *testing.T, net *network) chan<- topology.Content {
	t.Helper()
	client, err := NewClient(&Config{Server: "http://server", Transport: net})
	if err != nil {
		t.Fatal(err)
	}
	p := NewTopology(client, TopologyOptions{Rand: seeded(1), Identify: func(context.Context) (Identity, error) { return n1, nil }})
	ctx, cancel := context.WithCancel(t.Context())
	contents, done := make(chan topology.Content, 1), make(chan struct{})
	go func() { p.Run(ctx, contents); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return contents
}

// availableIn returns the published number of available CPUs; empty: there is no object.
func availableIn(net *network) string {
	object := net.get(ownTopology)
	if object == nil {
		return ""
	}
	zone := object["zones"].([]any)[0].(map[string]any)
	return zone["resources"].([]any)[0].(map[string]any)["available"].(string)
}

// TestTopologyAfterFiveMinutesWithoutTheAPIServer: the newest of several contents is published within a minute of the return, with one write.
func TestTopologyAfterFiveMinutesWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		contents := runTopology(t, net)
		contents <- zonesWith("6")
		synctest.Wait()
		net.leave()
		for _, available := range []string{"5", "4", "3"} {
			contents <- zonesWith(available)
			time.Sleep(100 * time.Second)
		}
		if got := availableIn(net); got != "6" {
			t.Errorf("%s CPUs are published while the API server is away, want 6", got)
		}
		net.back()
		time.Sleep(maxUnavailable)
		synctest.Wait()
		if got := availableIn(net); got != "3" {
			t.Errorf("%s CPUs are published after the return, want 3", got)
		}
		writes := 0
		for _, c := range net.sent() {
			if c.method == http.MethodPatch {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("%d writes after the return, want 1", writes)
		}
	})
}

// TestTopologyIsRepaired: another client edits or deletes the object, or writes at the same time, so that the patch conflicts.
func TestTopologyIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(s *server){
		"edited": func(s *server) {
			forged := clone(s.get(ownTopology))
			forged["zones"] = []any{map[string]any{"name": "node-7", "type": "Node"}}
			s.set(ownTopology, forged)
		},
		"deleted": func(s *server) { s.remove(ownTopology) },
		"without its owner": func(s *server) {
			forged := clone(s.get(ownTopology))
			delete(forged["metadata"].(map[string]any), "ownerReferences")
			s.set(ownTopology, forged)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			events := make(chan Event, 64)
			p := NewTopology(s.client(t), TopologyOptions{
				Identify: func(context.Context) (Identity, error) { return n1, nil }, Observe: func(e Event) { events <- e },
			})
			ctx, cancel := context.WithCancel(t.Context())
			contents, done := make(chan topology.Content, 1), make(chan struct{})
			go func() { p.Run(ctx, contents); close(done) }()
			defer func() { cancel(); <-done }()
			contents <- zonesWith("6")
			expect(t, events, "created", is(Created))
			<-s.watching
			want := clone(s.get(ownTopology))
			damage(s)
			expect(t, events, "repaired", func(e Event) bool { return e.Change == Patched || e.Change == Created })
			got := s.get(ownTopology)
			if diff := cmp.Diff(want["zones"], got["zones"]); diff != "" {
				t.Errorf("zones (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want["metadata"].(map[string]any)["ownerReferences"], got["metadata"].(map[string]any)["ownerReferences"]); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTopologyStartsOverAfterAConflict: another client has written since the publisher read.
func TestTopologyStartsOverAfterAConflict(t *testing.T) {
	s := newServer(t)
	p := newTopology(t, s)
	publishTopology(t, p, zonesWith("6"))
	touched := clone(s.get(ownTopology))
	touched["metadata"].(map[string]any)["annotations"] = map[string]any{"theirs": "x"}
	s.set(ownTopology, touched)
	s.took()
	if got := publishTopology(t, p, zonesWith("2")); got != Patched {
		t.Errorf("change = %q", got)
	}
	want := []string{"PATCH " + ownTopology, "GET " + ownTopology, "PATCH " + ownTopology}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	object := s.get(ownTopology)
	if object["metadata"].(map[string]any)["annotations"].(map[string]any)["theirs"] != "x" {
		t.Errorf("the annotation of the other client is gone: %v", object["metadata"])
	}
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
