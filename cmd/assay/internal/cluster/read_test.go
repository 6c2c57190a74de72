package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func clientOf(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := newClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": "Status", "message": message})
}

// TestAStartingAPIServerIsAskedAgain: an API server that had just been restarted answered "storage is (re)initializing", which ended the
// command.
func TestAStartingAPIServerIsAskedAgain(t *testing.T) {
	requests := 0
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests < 3 {
			w.Header().Set("Retry-After", "0")
			refuse(w, http.StatusTooManyRequests, "storage is (re)initializing")
			return
		}
		_, _ = fmt.Fprint(w, `{"items": [{"metadata": {"name": "a"}}]}`)
	})
	if nodes, err := c.Nodes(t.Context(), ""); err != nil || len(nodes) != 1 {
		t.Errorf("%d nodes, error %v, want 1 node", len(nodes), err)
	}
	requests = -1000
	if _, err := c.Nodes(t.Context(), ""); err == nil || requests != -1000+maxRetries+1 {
		t.Errorf("%d requests, error %v, want an error after %d", requests+1000, err, maxRetries+1)
	}
	requests = 0
	c = clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		refuse(w, http.StatusInternalServerError, "broken")
	})
	if _, err := c.Nodes(t.Context(), ""); err == nil || requests != 1 {
		t.Errorf("%d requests, error %v, want an error after 1: the API server asks for no other one", requests, err)
	}
}

// TestAListWhoseStateIsGoneIsReadAgain: the rest of a list cannot be read once the API server has compacted the state of its first page.
func TestAListWhoseStateIsGoneIsReadAgain(t *testing.T) {
	lists := 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("continue") {
		case "":
			lists++
			_, _ = fmt.Fprintf(w, `{"metadata": {"continue": "%d"}, "items": [{"metadata": {"name": "a%d"}}]}`, lists, lists)
		case "2":
			_, _ = fmt.Fprint(w, `{"items": [{"metadata": {"name": "b"}}]}`)
		default:
			refuse(w, http.StatusGone, "The provided continue parameter is too old")
		}
	})
	nodes, err := c.Nodes(t.Context(), "")
	if err != nil || len(nodes) != 2 || nodes[0].Name != "a2" || nodes[1].Name != "b" {
		t.Errorf("nodes %v, error %v, want a2 and b", nodes, err)
	}
	lists = 2
	if _, err := c.Nodes(t.Context(), ""); err == nil || lists != 2+maxLists {
		t.Errorf("%d lists, error %v, want an error after %d", lists-2, err, maxLists)
	}
}

// TestAnAbsentKindIsNamed: in a cluster without the kind, assay baseline report printed "no NodeBaselines found", and assay topology advised to
// install Assay.
func TestAnAbsentKindIsNamed(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodebaselines") || strings.Contains(r.URL.Path, "/noderesourcetopologies") {
			http.NotFound(w, r) // as the API server does
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind": "Status", "reason": "NotFound", "details": {"name": "a", "kind": "nodefeaturerequests"}}`)
	})
	_, baselines := c.Baselines(t.Context())
	_, topologies := c.Topologies(t.Context())
	_, topology := c.Topology(t.Context(), "n1")
	for want, err := range map[string]error{
		"does not have the kind nodebaselines.assay.dev: install Assay first":                                  baselines,
		"does not have the kind noderesourcetopologies.topology.node.k8s.io: set topology.enabled":             topologies,
		"the cluster does not have the kind noderesourcetopologies.topology.node.k8s.io: set topology.enabled": topology,
	} {
		if !IsNotFound(err) || !IsAbsentKind(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := c.Request(t.Context(), "default", "a"); !IsNotFound(err) || IsAbsentKind(err) {
		t.Errorf("an object that does not exist: %v", err)
	}
}
