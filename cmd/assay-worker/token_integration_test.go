package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/testkit"
)

// pod is a worker's pod on a node: an object in the cluster and a token that is bound to it.
type pod struct {
	*corev1.Pod
	daemonSet  *appsv1.DaemonSet
	node       *corev1.Node
	kubeconfig string
}

// newPod creates a pod of a DaemonSet on a node, and a ServiceAccount that is only allowed the given rules in the namespace.
func newPod(t *testing.T, c client.Client, config *rest.Config, namespace, node string, rules ...rbacv1.PolicyRule) pod {
	t.Helper()
	const account = "worker"
	p := pod{node: testkit.Node(t, c, node)}
	meta := metav1.ObjectMeta{Name: account, Namespace: namespace}
	sa := &corev1.ServiceAccount{ObjectMeta: meta}
	testkit.Create(t, c, sa)
	testkit.Create(t, c, &rbacv1.Role{ObjectMeta: meta, Rules: rules})
	testkit.Create(t, c, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}},
	})
	labels := map[string]string{"app": account}
	spec := corev1.PodSpec{
		NodeName: node, ServiceAccountName: account, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "worker", Image: "none"}},
	}
	p.daemonSet = &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	// The real DaemonSet controller must ignore the pod: the pod has neither a controller reference nor the labels.
	p.daemonSet.Spec.Template.Spec.NodeName = ""
	p.daemonSet.Spec.Template.Spec.NodeSelector = map[string]string{"no": "node"}
	testkit.Create(t, c, p.daemonSet)
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: p.daemonSet.Name, UID: p.daemonSet.UID}}
	p.Pod = &corev1.Pod{ObjectMeta: meta, Spec: spec}
	testkit.Create(t, c, p.Pod)

	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
	}}
	if err := c.SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	p.kubeconfig = writeKubeconfig(t, config, config.Host, request.Status.Token)
	return p
}

// writeKubeconfig writes a kubeconfig with a token file, as in a pod.
func writeKubeconfig(t *testing.T, config *rest.Config, server, token string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "token"), token)
	ca := config.CAData
	if len(ca) == 0 && config.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: %q, certificate-authority-data: %q}}], users: [{name: x, user: {tokenFile: %q}}]}`,
		server, base64.StdEncoding.EncodeToString(ca), filepath.Join(dir, "token"))
	path := filepath.Join(dir, "kubeconfig")
	writeFile(t, path, text)
	return path
}

func mayNodeFeatures(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{nfdv1alpha1.GroupVersion.Group}, Resources: []string{"nodefeatures"}, Verbs: verbs}
}

func mayPods(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}
}

// TestBoundTokenIsAllAWorkerNeeds starts workers without a node name, whose ServiceAccounts may not read Nodes.
func TestBoundTokenIsAllAWorkerNeeds(t *testing.T) {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	owner := func(kind, name string, uid any) string { return fmt.Sprintf("%s %s %s", kind, name, uid) }
	for name, tt := range map[string]struct {
		rules  []rbacv1.PolicyRule
		owners string
		want   func(pod) []string
	}{
		"Node": {
			rules:  []rbacv1.PolicyRule{mayNodeFeatures("get", "create", "patch", "watch")},
			owners: "node",
			want:   func(p pod) []string { return []string{owner("Node", p.node.Name, p.node.UID)} },
		},
		"PodAndDaemonSetAsNFD": {
			rules:  []rbacv1.PolicyRule{mayNodeFeatures("get", "create", "patch", "watch"), mayPods("get")},
			owners: "pod,ds",
			want: func(p pod) []string {
				return []string{owner("Pod", p.Name, p.UID), owner("DaemonSet", p.daemonSet.Name, p.daemonSet.UID)}
			},
		},
		"WatchIsForbidden": {
			rules:  []rbacv1.PolicyRule{mayNodeFeatures("get", "create", "patch")},
			owners: "node",
			want:   func(p pod) []string { return []string{owner("Node", p.node.Name, p.node.UID)} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := testkit.Namespace(t, c)
			p := newPod(t, c, user.RESTConfig(), namespace, "token-"+strings.ToLower(name), tt.rules...)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "worker.conf"), "core: {sleepInterval: 1h}\n")
			if err := os.Mkdir(filepath.Join(dir, "features.d"), 0o755); err != nil {
				t.Fatal(err)
			}
			log := start(t, "-kubeconfig", p.kubeconfig, "-namespace", namespace, "-owner-refs", tt.owners,
				"-config", filepath.Join(dir, "worker.conf"), "-config-dir", dir)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log)
				}
			})
			nf := eventually(t, c, namespace, p.node.Name, "published under the token's node", func(*nfdv1alpha1.NodeFeature) bool { return true })
			var owners []string
			for _, o := range nf.OwnerReferences {
				owners = append(owners, owner(o.Kind, o.Name, o.UID))
			}
			if diff := cmp.Diff(tt.want(p), owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			writeFile(t, filepath.Join(dir, "features.d", "news"), "news\n")
			eventually(t, c, namespace, p.node.Name, "changed", func(nf *nfdv1alpha1.NodeFeature) bool { return nf.Spec.Labels["news"] == "true" })
		})
	}
}

// TestWatchThatIsTooOldIsOpenedAnew interrupts the watch, lets the last seen resourceVersion expire, and deletes the object in the
// meantime. A proxy changes the requests to those after a long interruption.
func TestWatchThatIsTooOldIsOpenedAnew(t *testing.T) {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	namespace := testkit.Namespace(t, c)
	node := testkit.Node(t, c, "watch-gone")
	proxy := newAgeing(t, user.RESTConfig())
	kc := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, kc, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x}}],
clusters: [{name: x, cluster: {server: %q}}]}`, proxy.URL))
	configFile := filepath.Join(t.TempDir(), "worker.conf")
	writeFile(t, configFile, "core: {sleepInterval: 1h}\n")
	start(t, "-kubeconfig", kc, "-namespace", namespace, "-node-name", node.Name, "-config", configFile)
	first := eventually(t, c, namespace, node.Name, "published", func(*nfdv1alpha1.NodeFeature) bool { return true })
	<-proxy.watching
	proxy.refuse.Store(true)
	proxy.cut()
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	proxy.age.Store(true)
	proxy.refuse.Store(false)
	eventually(t, c, namespace, node.Name, "created again", func(nf *nfdv1alpha1.NodeFeature) bool { return nf.UID != first.UID })
	if !proxy.gone.Load() {
		t.Error("the server never said that the version is too old")
	}
}

// ageing is a proxy in front of the API server.
type ageing struct {
	*httptest.Server
	watching chan struct{} // receives a value when a watch is open
	refuse   atomic.Bool   // reject requests
	age      atomic.Bool   // continue watches from the oldest resourceVersion
	gone     atomic.Bool   // the server has responded with 410

	mu      sync.Mutex
	cancels []context.CancelFunc
}

func newAgeing(t *testing.T, config *rest.Config) *ageing {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	a := &ageing{watching: make(chan struct{}, 64)}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.refuse.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		q := r.URL.Query()
		if q.Get("watch") != "true" {
			forward.ServeHTTP(w, r)
			return
		}
		if a.age.Load() && q.Get("resourceVersion") != "" {
			q.Set("resourceVersion", "1")
			r.URL.RawQuery = q.Encode()
		}
		ctx, cancel := context.WithCancel(r.Context())
		a.mu.Lock()
		a.cancels = append(a.cancels, cancel)
		a.mu.Unlock()
		a.watching <- struct{}{}
		forward.ServeHTTP(&listening{ResponseWriter: w, gone: &a.gone}, r.WithContext(ctx))
	}))
	t.Cleanup(a.Close)
	return a
}

// cut closes all watches.
func (a *ageing) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.cancels {
		cancel()
	}
}

// listening detects the status 410 for an old resourceVersion, in a response or in an event of the watch.
type listening struct {
	http.ResponseWriter
	gone *atomic.Bool
}

func (l *listening) WriteHeader(code int) {
	if code == http.StatusGone {
		l.gone.Store(true)
	}
	l.ResponseWriter.WriteHeader(code)
}

func (l *listening) Write(p []byte) (int, error) {
	var event struct {
		Object struct{ Code int }
	}
	if json.Unmarshal(p, &event) == nil && event.Object.Code == http.StatusGone {
		l.gone.Store(true)
	}
	return l.ResponseWriter.Write(p)
}

func (l *listening) Flush() { l.ResponseWriter.(http.Flusher).Flush() }

// TestTokenOfTheRealServerSaysWhoItIsBoundTo checks the names of the claims in a token of a real API server.
func TestTokenOfTheRealServerSaysWhoItIsBoundTo(t *testing.T) {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	namespace := testkit.Namespace(t, c)
	p := newPod(t, c, user.RESTConfig(), namespace, "token-claims")
	token, err := os.ReadFile(filepath.Join(filepath.Dir(p.kubeconfig), "token"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := publish.FromToken(token)
	if err != nil {
		t.Fatal(err)
	}
	want := publish.Identity{Node: p.node.Name, NodeUID: string(p.node.UID), Pod: p.Name, PodUID: string(p.UID), Namespace: namespace}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}
