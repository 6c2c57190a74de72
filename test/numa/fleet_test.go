//go:build linux

package numa

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

const (
	// fewPublishers is the number of publishers unless PUBLISHERS is set.
	fewPublishers = 20
	// atOnce is the number of objects that are created at the same time, for the first publication, too: a DaemonSet starts its pods over
	// some time.
	atOnce = 50
	// idleTime is the time in which requests are counted while nothing changes.
	idleTime = 20 * time.Second
	// fleetTime is the maximum time that a fleet needs for each step: 15,000 publishers write 50 to 300 times a second on two cores.
	fleetTime = 20 * time.Minute
	// account and accountNamespace are those of the policy in the chart.
	account, accountNamespace = "assay-topology", "assay-system"
)

// publishers are the publishers of a fleet in one process, each with its own connection, its own token and its own watch.
type publishers struct {
	*world
	t     *testing.T
	nodes []member
	many  bool
	// written is the number of writes and failed that of failed attempts.
	written, failed atomic.Int64
}

type member struct {
	name, uid, token string
	contents         chan topology.Content
}

// TestManyPublishers publishes the topologies of a fleet, with the policy of the chart: all are written, then nothing is sent while nothing
// changes, then all change at once, and at last while the API server restarts. With PUBLISHERS it logs figures.
func TestManyPublishers(t *testing.T) {
	n, measured := fewPublishers, os.Getenv("PUBLISHERS")
	if measured != "" {
		var err error
		if n, err = strconv.Atoi(measured); err != nil {
			t.Fatalf("PUBLISHERS: %v", err)
		}
	}
	c := testkit.PrivateCluster(t, cluster.Options{Core: true})
	config := rest.CopyConfig(c.RESTConfig())
	config.QPS = -1
	client, err := ctrlclient.New(config, ctrlclient.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	p := &publishers{world: &world{Cluster: c, client: testkit.Client(t, c.User)}, t: t, many: measured != ""}
	p.define(t)
	p.authorize()
	p.join(client, n)

	ctx, cancel := context.WithCancel(t.Context())
	var running errgroup.Group
	defer func() { cancel(); _ = running.Wait() }()
	began := time.Now()
	p.start(ctx, &running)
	p.until("published", int64(n))
	p.t.Logf("%d publishers have published %.1f s after the first started", n, time.Since(began).Seconds())
	p.all("1")
	p.watches(n)

	before := p.requests()
	if measured != "" {
		time.Sleep(idleTime)
		p.t.Logf("%d requests within %s while nothing changes", p.requests()-before, idleTime)
	}
	began = time.Now()
	p.change(holds("a", 0, 1))
	p.until("changed", int64(2*n))
	p.t.Logf("all have changed at once: %.1f s, %.0f writes a second", time.Since(began).Seconds(), float64(n)/time.Since(began).Seconds())
	p.all("2")

	if err := c.Kill(kube.APIServer); err != nil {
		t.Fatal(err)
	}
	p.change(holds("a", 0))
	if err := c.Restart(t.Context(), kube.APIServer); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	p.all("3") // a write whose response was lost is not counted: the publisher finds the object as it should be
	p.t.Logf("all have published %.1f s after the API server was ready again, with %d failed attempts", time.Since(began).Seconds(), p.failed.Load())
	if measured == "" {
		return // each watch is opened again within half a minute, and later if the API server rejects it
	}
	p.watches(n)
	p.t.Logf("all are watched again %.1f s after the API server was ready", time.Since(began).Seconds())
	for _, program := range []string{kube.APIServer, "etcd"} {
		p.t.Logf("peak memory of %s: %s", program, p.peak(program))
	}
}

// authorize creates the ServiceAccount of the publishers with its rights, and the policy that binds each to its own node.
func (p *publishers) authorize() {
	p.t.Helper()
	meta := metav1.ObjectMeta{Name: account}
	for _, object := range []ctrlclient.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: accountNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: accountNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha2.GroupVersion.Group}, Resources: []string{"noderesourcetopologies"}, Verbs: []string{"create", "get", "list", "watch", "patch"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: accountNamespace}},
		},
	} {
		testkit.Create(p.t, p.client, object)
	}
	if _, err := p.Kubectl(p.t.Context(), "create", "-f", "../../charts/assay/files/topology/policy.yaml"); err != nil {
		p.t.Fatal(err)
	}
}

// join creates the Nodes, and a token for each that is bound to it.
func (p *publishers) join(client ctrlclient.Client, n int) {
	p.t.Helper()
	p.nodes = make([]member, n)
	g, ctx := errgroup.WithContext(p.t.Context())
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("numa-%05d", i)}}
			if err := client.Create(ctx, node); err != nil {
				return err
			}
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: ptr.To(int64((24 * time.Hour).Seconds())), // more than a run takes
				BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}}
			err := client.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: accountNamespace, Name: account}}, request)
			p.nodes[i] = member{name: node.Name, uid: string(node.UID), token: request.Status.Token, contents: make(chan topology.Content, 1)}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// start runs the publishers; atOnce of them publish for the first time together.
func (p *publishers) start(ctx context.Context, running *errgroup.Group) {
	p.t.Helper()
	base, err := publish.FromKubeconfig(p.Kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	first := p.content(p.t, holds("a", 0, 1, 2))
	slots := make(chan struct{}, atOnce)
	for i := range p.nodes {
		m := &p.nodes[i]
		config := *base
		config.Cert, config.Key, config.Token = nil, nil, m.token
		client, err := publish.NewClient(&config)
		if err != nil {
			p.t.Fatal(err)
		}
		waiting := true
		publisher := publish.NewTopology(client, publish.TopologyOptions{
			Identify: func(context.Context) (publish.Identity, error) {
				return publish.Identity{Node: m.name, NodeUID: m.uid}, nil
			},
			Observe: func(e publish.Event) {
				switch {
				case e.Err != nil:
					p.failed.Add(1)
				case e.Change == publish.Created || e.Change == publish.Patched:
					p.written.Add(1)
					if waiting {
						waiting = false
						<-slots
					}
				}
			},
		})
		slots <- struct{}{}
		m.contents <- first
		running.Go(func() error { publisher.Run(ctx, m.contents); return nil })
	}
}

// change hands new content to all publishers.
func (p *publishers) change(pods ...podres.Pod) {
	p.t.Helper()
	now := p.content(p.t, pods...)
	for i := range p.nodes {
		p.nodes[i].contents <- now
	}
}

// eventually is testkit.Eventually for a fleet, which takes longer.
func (p *publishers) eventually(what string, condition func(context.Context) error) {
	p.t.Helper()
	if !p.many {
		testkit.Eventually(p.t, what, condition)
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), fleetTime)
	defer cancel()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: %v", what, err)
		case <-time.After(time.Second):
		}
	}
}

// until waits until that many writes have succeeded.
func (p *publishers) until(what string, writes int64) {
	p.t.Helper()
	p.eventually(what, func(context.Context) error {
		if got := p.written.Load(); got < writes {
			return fmt.Errorf("%d of %d writes, %d attempts failed", got, writes, p.failed.Load())
		}
		return nil
	})
}

// all waits until the objects of all nodes have their owner, and this number of CPUs available in their first zone.
func (p *publishers) all(available string) {
	p.t.Helper()
	uids := map[string]string{}
	for _, m := range p.nodes {
		uids[m.name] = m.uid
	}
	p.eventually("the objects of all nodes", func(ctx context.Context) error {
		out, err := p.Kubectl(ctx, "get", "--raw", "/apis/"+v1alpha2.GroupVersion.String()+"/noderesourcetopologies")
		if err != nil {
			return err
		}
		var list struct {
			Items []v1alpha2.NodeResourceTopology
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		if len(list.Items) != len(p.nodes) {
			return fmt.Errorf("%d objects of %d nodes", len(list.Items), len(p.nodes))
		}
		for i := range list.Items {
			o := &list.Items[i]
			if len(o.OwnerReferences) != 1 || string(o.OwnerReferences[0].UID) != uids[o.Name] || o.Zones[0].Resources[0].Available.String() != available {
				return fmt.Errorf("%s has the owners %v and the zone %v, want %s CPUs available", o.Name, o.OwnerReferences, o.Zones[0], available)
			}
		}
		p.t.Logf("all objects as a list: %.2f MB", float64(len(out))/1e6)
		return nil
	})
}

// metric returns the sum of a metric of the API server for NodeResourceTopologies.
func (p *publishers) metric(ctx context.Context, name, label string) (sum float64, err error) {
	out, err := p.Kubectl(ctx, "get", "--raw", "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `resource="noderesourcetopologies"`) && strings.Contains(line, label) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, nil
}

// watches waits until each object is watched.
func (p *publishers) watches(n int) {
	p.t.Helper()
	p.eventually("watches", func(ctx context.Context) error {
		got, err := p.metric(ctx, "apiserver_longrunning_requests", `verb="WATCH"`)
		if err == nil && int(got) != n {
			err = fmt.Errorf("%v watches of %d objects", got, n)
		}
		return err
	})
}

// requests returns the number of requests for NodeResourceTopologies.
func (p *publishers) requests() int {
	p.t.Helper()
	n, err := p.metric(p.t.Context(), "apiserver_request_total", "")
	if err != nil {
		p.t.Fatal(err)
	}
	return int(n)
}

// peak returns the peak memory of a program.
func (p *publishers) peak(program string) string {
	p.t.Helper()
	pid, err := p.PID(program)
	if err != nil {
		p.t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
