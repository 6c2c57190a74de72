//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// interrupter forwards requests to an API server. When armed, it calls a function at the next PATCH with a given path suffix:
// either before the PATCH, which is then not forwarded, or after it, and the response is then not returned.
type interrupter struct {
	*httptest.Server
	mu    sync.Mutex
	path  string
	after bool
	call  func()
}

func interrupting(t *testing.T, c *cluster.Cluster) *interrupter {
	t.Helper()
	forward := forwarding(t, c)
	i := &interrupter{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, after := i.fire(r)
		if call == nil {
			forward.ServeHTTP(w, r)
			return
		}
		if after {
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		call()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(func() { i.CloseClientConnections(); i.Close() })
	return i
}

// forwarding returns a proxy to an API server.
func forwarding(t *testing.T, c *cluster.Cluster) http.Handler {
	t.Helper()
	target, err := url.Parse(c.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	return forward
}

// TestAControllerWhoseCachesAreNotFilledStops: the API server does not answer the list of Nodes.
func TestAControllerWhoseCachesAreNotFilledStops(t *testing.T) {
	c := testkit.Cluster(t)
	forward, listed := forwarding(t, c), make(chan struct{}, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" {
			forward.ServeHTTP(w, r)
			return
		}
		select {
		case listed <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	namespace := testkit.Namespace(t, testkit.Client(t, c.User))
	r := launchController(t, c, namespace, "-kubeconfig="+redirected(t, c.Kubeconfig, c.RESTConfig().Host, proxy.URL))
	select {
	case <-listed:
	case <-time.After(time.Minute):
		t.Fatal("the controller does not list Nodes")
	}
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		r.ended <- err
		if err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the controller still runs a minute after SIGTERM")
	}
}

// arm registers the function for one call.
func (i *interrupter) arm(path string, after bool, call func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.path, i.after, i.call = path, after, call
}

func (i *interrupter) fire(r *http.Request) (call func(), after bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.call == nil || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, i.path) {
		return nil, false
	}
	call, i.call = i.call, nil
	return call, i.after
}

// TestAKilledControllerLeavesNothingHalfDone kills the controller before and after each of the two writes of a reconciliation of a
// Node.
func TestAKilledControllerLeavesNothingHalfDone(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		after bool
	}{
		"BeforeTheStatus": {"/nodes/n1/status", false},
		"AfterTheStatus":  {"/nodes/n1/status", true},
		"BeforeTheTaints": {"/nodes/n1", false},
		"AfterTheTaints":  {"/nodes/n1", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := testkit.Cluster(t)
			k := testkit.Client(t, c.User)
			namespace := testkit.Namespace(t, k)
			testkit.Node(t, k, "n1")
			// Without a NodeFeature, a new controller could not know that the rule was deleted, and would hold the labels.
			testkit.Create(t, k, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "n1", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"},
			}})
			foreign := corev1.Taint{Key: "other.io/t", Effect: corev1.TaintEffectNoSchedule}
			before := &corev1.Node{}
			testkit.Eventually(t, "a Node with a foreign taint", func(ctx context.Context) error {
				if err := k.Get(ctx, client.ObjectKey{Name: "n1"}, before); err != nil {
					return err
				}
				before.Spec.Taints = []corev1.Taint{foreign}
				return k.Update(ctx, before)
			})
			ruleWith(t, k, "stays", "vendor.io/stays")
			proxy := interrupting(t, c)
			through := redirected(t, c.Kubeconfig, c.RESTConfig().Host, proxy.URL)
			first := startController(t, c, namespace, "-enable-taints", "-kubeconfig="+through)
			labeled(t, k, "n1", "vendor.io/stays", "1")

			proxy.arm(test.path, test.after, func() { _ = first.end(syscall.SIGKILL) })
			rule := &nfdv1alpha1.NodeFeatureRule{
				ObjectMeta: metav1.ObjectMeta{Name: "comes"},
				Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
					Name: "r", Labels: map[string]string{"vendor.io/comes": "1"}, Annotations: map[string]string{"vendor.io/comes": "1"},
					ExtendedResources: map[string]string{"vendor.io/comes": "3"},
					Taints:            []corev1.Taint{{Key: "vendor.io/comes", Value: "1", Effect: corev1.TaintEffectNoSchedule}},
				}}},
			}
			testkit.Create(t, k, rule)
			ended := <-first.ended
			first.ended <- ended
			if ended == nil {
				t.Error("the controller has ended by itself, and was not killed")
			}

			startController(t, c, namespace, "-enable-taints")
			testkit.Eventually(t, "all that the rule gives", func(ctx context.Context) error {
				n := &corev1.Node{}
				if err := k.Get(ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
					return err
				}
				amount := n.Status.Allocatable["vendor.io/comes"]
				if n.Labels["vendor.io/comes"] != "1" || n.Annotations["vendor.io/comes"] != "1" || amount.Cmp(resource.MustParse("3")) != 0 || len(n.Spec.Taints) != 2 {
					return fmt.Errorf("labels %v, annotations %v, resources %v, taints %v", n.Labels, n.Annotations, n.Status.Allocatable, n.Spec.Taints)
				}
				if n.Labels["vendor.io/stays"] != "1" {
					t.Error("the label of another rule has gone")
				}
				return nil
			})
			if err := k.Delete(t.Context(), rule); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "nothing that the rule gave", func(ctx context.Context) error {
				n := &corev1.Node{}
				if err := k.Get(ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
					return err
				}
				_, label := n.Labels["vendor.io/comes"]
				_, annotation := n.Annotations["vendor.io/comes"]
				_, capacity := n.Status.Capacity["vendor.io/comes"]
				if label || annotation || capacity || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != foreign.Key {
					return fmt.Errorf("labels %v, annotations %v, resources %v, taints %v", n.Labels, n.Annotations, n.Status.Capacity, n.Spec.Taints)
				}
				return nil
			})
		})
	}
}
