package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/internal/testkit"
)

// TestModelSelectsPodsLikeAPIServer compares lists and watches of pods with the fields by which controllers select them. What a Pod contains
// is not compared: an API server sets many defaults.
func TestModelSelectsPodsLikeAPIServer(t *testing.T) {
	config := testkit.Cluster(t).User.RESTConfig()
	config.QPS = -1
	real, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	user := testkit.Client(t, testkit.Cluster(t).User)
	namespace := testkit.Namespace(t, user)
	testkit.Eventually(t, "the ServiceAccount of pods", func(ctx context.Context) error {
		return user.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	model := apiserver.New(apiserver.Resources()...)
	want := selectPods(t, &side{http: real, host: config.Host, names: map[string]string{}, last: map[string]object{}}, namespace)
	got := selectPods(t, &side{
		http: &http.Client{Transport: delivering{model.NewClient("script").Direct()}}, host: "http://model", names: map[string]string{}, last: map[string]object{},
	}, namespace)
	for _, text := range model.Unsupported() {
		t.Errorf("unsupported: %s", text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("- API server, + model:\n%s", diff)
	}
}

// selectPods returns the types and names of what a list and a watch deliver.
func selectPods(t *testing.T, s *side, namespace string) (history []string) {
	t.Helper()
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	query := "?fieldSelector=" + url.QueryEscape("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
	send := func(method, path string, body object) {
		code := s.send(t, method, path, body).(object)["code"]
		history = append(history, fmt.Sprint(method, " ", path, " ", code))
	}
	create := func(name, node string) {
		spec := object{"containers": []any{object{"name": "c", "image": "none"}}, "tolerations": []any{object{"operator": "Exists"}}}
		if node != "" {
			spec["nodeName"] = node
		}
		send(http.MethodPost, pods, object{"metadata": object{"name": name}, "spec": spec})
	}
	create("bound", "none")
	create("unbound", "")
	create("other", "none")
	list, version := s.pods(t, pods+query)
	history = append(history, list...)
	watch, err := s.do(t.Context(), http.MethodGet, pods+query+"&watch=true&resourceVersion="+version, "application/json", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	stop := time.AfterFunc(patience, func() { watch.Body.Close() })
	defer stop.Stop()
	send(http.MethodPatch, pods+"/bound", object{"metadata": object{"labels": object{"a": "b"}}})
	send(http.MethodPatch, pods+"/unbound", object{"metadata": object{"labels": object{"a": "b"}}})
	send(http.MethodPatch, pods+"/bound/status", object{"status": object{"phase": "Succeeded"}})
	send(http.MethodDelete, pods+"/other", object{"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
	lines := bufio.NewReader(watch.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v; so far: %v", err, history)
		}
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.Type == "MODIFIED" && event.Object.DeletionTimestamp != nil {
			continue // an API server marks a Pod that is bound before it deletes it
		}
		history = append(history, event.Type+" "+event.Object.Name)
		if event.Object.Name == "other" && event.Type == "DELETED" {
			return history
		}
	}
}

// pods returns the names of listed pods, and the version of the list.
func (s *side) pods(t *testing.T, path string) (names []string, version string) {
	t.Helper()
	resp, err := s.do(t.Context(), http.MethodGet, path, "application/json", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list corev1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, "listed "+list.Items[i].Name)
	}
	return names, list.ResourceVersion
}
