//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/internal/watchhealth"
)

// freezer forwards connections to a server. While frozen, it keeps connections open and accepts new ones, but forwards nothing.
type freezer struct {
	address string
	gate    sync.RWMutex
}

func newFreezer(t *testing.T, target string) *freezer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &freezer{address: listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			go f.pump(in, out)
			go f.pump(out, in)
		}
	}()
	return f
}

func (f *freezer) freeze() { f.gate.Lock() }
func (f *freezer) thaw()   { f.gate.Unlock() }

func (f *freezer) pump(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n == 0 && err != nil {
			return
		}
		f.gate.RLock()
		_, err = to.Write(buffer[:n])
		f.gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// quickPings reduces the time to detect a dead connection from 15 to 2 seconds.
var quickPings = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}

func TestExtenderRefusesToAnswerWhileItsWatchesAreFrozen(t *testing.T) {
	const amx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]"
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	proxy := newFreezer(t, strings.TrimPrefix(c.RESTConfig().Host, "https://"))
	testkit.Node(t, k, "frozen-node")
	published := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: testkit.Namespace(t, k), Name: "frozen-node", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "frozen-node"},
	}}
	published.Spec.Features.Flags = map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": {Elements: map[string]nfdv1alpha1.Nil{"AMX": {}}}}
	testkit.Create(t, k, published)
	e := startExtender(t, c, proxy.address, quickPings, "--watch-patience=1s")
	testkit.Eventually(t, "the node has the feature", func(context.Context) error {
		if got, err := e.filter(amx, "frozen-node"); err != nil || len(*got.NodeNames) != 1 {
			return fmt.Errorf("got %+v (%w)", got, err)
		}
		return nil
	})

	proxy.freeze()
	thaw := sync.OnceFunc(proxy.thaw)
	t.Cleanup(thaw)
	published.Spec.Features.Flags = nil
	if err := k.Update(t.Context(), published); err != nil { // not through the proxy
		t.Fatal(err)
	}
	testkit.Eventually(t, "the extender says that it cannot know", func(ctx context.Context) error {
		got, err := e.filter(amx, "frozen-node")
		if err != nil || !strings.Contains(got.Error, "watches of the API server are interrupted: ") || len(*got.NodeNames) != 0 {
			return fmt.Errorf("got %+v (%w)", got, err)
		}
		if text, err := testkit.Get(ctx, "http://"+e.address+"/readyz"); err == nil {
			return fmt.Errorf("it is ready: %s", text)
		}
		return nil
	})
	if text, err := testkit.Get(t.Context(), "http://"+e.address+"/metrics"); err != nil || strings.Contains(text, "assay_watch_closed_seconds 0\n") {
		t.Errorf("metrics: %v\n%s", err, text)
	}

	thaw()
	testkit.Eventually(t, "the extender knows that the feature is gone", func(ctx context.Context) error {
		got, err := e.filter(amx, "frozen-node")
		if err != nil || got.Error != "" || len(got.FailedAndUnresolvableNodes) != 1 {
			return fmt.Errorf("got %+v (%w)", got, err)
		}
		_, err = testkit.Get(ctx, "http://"+e.address+"/readyz")
		return err
	})
}

func TestControllerIsNotReadyWhileItsWatchesAreFrozen(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	proxy := newFreezer(t, strings.TrimPrefix(c.RESTConfig().Host, "https://"))
	thaw := sync.OnceFunc(proxy.thaw)
	for _, setting := range quickPings {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	r := startController(t, c, testkit.Namespace(t, k), "-kubeconfig="+redirected(t, c.Kubeconfig, c.RESTConfig().Host, "https://"+proxy.address))
	testkit.Node(t, k, "frozen-node")
	proxy.freeze()
	t.Cleanup(thaw)
	testkit.Eventually(t, "the controller says that it hears nothing", func(ctx context.Context) error {
		if text, err := testkit.Get(ctx, "http://"+r.health+"/readyz?verbose"); err == nil {
			return fmt.Errorf("it is ready: %s", text)
		}
		return nil
	})
	thaw()
	ruleWith(t, k, "frozen", "frozen.example.com/label")
	labeled(t, k, "frozen-node", "frozen.example.com/label", "1")
}

// requestCounter counts requests for NodeFeatures.
type requestCounter struct {
	next           http.RoundTripper
	lists, watches atomic.Int32
}

func (c *requestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case !strings.HasSuffix(r.URL.Path, "/nodefeatures"):
	case r.URL.Query().Get("watch") != "true" || r.URL.Query().Get("sendInitialEvents") == "true":
		c.lists.Add(1)
	default:
		c.watches.Add(1)
	}
	return c.next.RoundTrip(r)
}

// TestSilentWatchGoesOnWhereItStopped reopens all watches after a very short silence. A watch that was open for less than a second
// would cause a new list.
func TestSilentWatchGoesOnWhereItStopped(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	config, count := c.RESTConfig(), &requestCounter{}
	m := watchhealth.New(watchhealth.Options{Silence: 1200 * time.Millisecond})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
	config.Wrap(m.RoundTripper)
	scheme, err := fleet.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	go m.Run(t.Context())
	go func() { _ = objects.Start(t.Context()) }()
	if _, err := objects.GetInformer(t.Context(), &nodefeature.NodeFeature{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it was opened again several times", func(context.Context) error {
		if n := count.watches.Load(); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		return m.Check()
	})
	published := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: testkit.Namespace(t, k), Name: "late"}}
	testkit.Create(t, k, published)
	testkit.Eventually(t, "events still come", func(ctx context.Context) error {
		return objects.Get(ctx, client.ObjectKeyFromObject(published), &nodefeature.NodeFeature{})
	})
	if n := count.lists.Load(); n != 1 {
		t.Errorf("all objects were listed %d times", n)
	}
}
