//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// replica is a controller in its own process.
type replica struct {
	*exec.Cmd
	health string
	log    *safeBuffer
	ended  chan error
}

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startController starts a controller and waits until it is ready.
func startController(t *testing.T, c *cluster.Cluster, namespace string, args ...string) *replica {
	t.Helper()
	r := launchController(t, c, namespace, args...)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		_, err := testkit.Get(t.Context(), "http://"+r.health+"/readyz")
		if err == nil {
			return r
		}
		select {
		case ended := <-r.ended:
			r.ended <- ended
			t.Fatalf("a controller has ended: %v", ended)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("a controller is not ready: %v", err)
		}
	}
}

// launchController starts a controller.
func launchController(t *testing.T, c *cluster.Cluster, namespace string, args ...string) *replica {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{health: testkit.FreeAddress(t), log: &safeBuffer{}, ended: make(chan error, 1)}
	r.Cmd = exec.Command(program, append([]string{"controller", "-kubeconfig=" + c.Kubeconfig, "-namespace=" + namespace,
		"-port=" + testkit.Port(r.health), "-metrics-port=0", "-v=1"}, args...)...)
	r.Env = append(os.Environ(), asManager+"=1")
	r.Stdout, r.Stderr = r.log, r.log
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.Wait() }()
	t.Cleanup(func() {
		_ = r.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of a controller:\n%s", r.log)
		}
	})
	return r
}

// end sends a signal to the process and returns its exit status.
func (r *replica) end(signal os.Signal) error {
	_ = r.Process.Signal(signal)
	err := <-r.ended
	r.ended <- err
	return err
}

// labeled waits until a label of a Node has a value; "" means that the label does not exist.
func labeled(t *testing.T, k client.Client, node, label, value string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	testkit.Eventually(t, label+"="+value, func(ctx context.Context) error {
		if err := k.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		if got, there := n.Labels[label]; got != value || there != (value != "") {
			return fmt.Errorf("labels are %v", n.Labels)
		}
		return nil
	})
	return n
}

func ruleWith(t *testing.T, k client.Client, name, label string) {
	t.Helper()
	testkit.Create(t, k, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{label: "1"}}}},
	})
}

func TestASecondReplicaTakesOverWithoutAFlap(t *testing.T) {
	for name, how := range map[string]struct {
		signal syscall.Signal
		within time.Duration
	}{"AfterAnEnd": {syscall.SIGTERM, 5 * time.Second}, "AfterDeath": {syscall.SIGKILL, 20 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			c := testkit.Cluster(t)
			k := testkit.Client(t, c.User)
			namespace := testkit.Namespace(t, k)
			node := testkit.Node(t, k, "n1")
			ruleWith(t, k, "a", "vendor.io/a")
			args := []string{"-enable-leader-election", "-options", "leaderElection: {leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 500ms}"}
			first := startController(t, c, namespace, args...)
			before := labeled(t, k, node.Name, "vendor.io/a", "1")
			second := startController(t, c, namespace, args...) // ready, although it is not the leader
			if strings.Contains(second.log.String(), "Wrote node") {
				t.Error("the standby has written")
			}
			watcher, err := k.Watch(t.Context(), &corev1.NodeList{}, client.MatchingFields{"metadata.name": node.Name})
			if err != nil {
				t.Fatal(err)
			}
			defer watcher.Stop()

			died := time.Now()
			if err := first.end(how.signal); how.signal == syscall.SIGTERM && err != nil {
				t.Errorf("asked to end: %v", err)
			}
			ruleWith(t, k, "b", "vendor.io/b")
			after := labeled(t, k, node.Name, "vendor.io/b", "1")
			if took := time.Since(died); took > how.within {
				t.Errorf("the second took over after %s, not within %s", took, how.within)
			}
			for {
				e := <-watcher.ResultChan()
				n := e.Object.(*corev1.Node)
				if n.Labels["vendor.io/a"] != "1" {
					t.Errorf("label missing at %s", n.ResourceVersion)
				}
				if n.ResourceVersion != before.ResourceVersion && n.ResourceVersion != after.ResourceVersion {
					t.Errorf("a write that nothing asked for: %s, neither %s nor %s", n.ResourceVersion, before.ResourceVersion, after.ResourceVersion)
				}
				if n.ResourceVersion == after.ResourceVersion {
					return
				}
			}
		})
	}
}

// TestInstancesOfOneNamespaceDoNotWaitForEachOther runs two instances, which must each hold their own Lease.
func TestInstancesOfOneNamespaceDoNotWaitForEachOther(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	testkit.Node(t, k, "n1")
	for _, instance := range []string{"", "second"} {
		args := []string{"-enable-leader-election"}
		if instance != "" {
			args = append(args, "-instance="+instance)
		}
		startController(t, c, namespace, args...)
	}
	for _, name := range []string{"nfd-master.nfd.kubernetes.io", "second.nfd-master.nfd.kubernetes.io"} {
		testkit.Eventually(t, "holder of Lease "+name, func(ctx context.Context) error {
			lease := &coordinationv1.Lease{}
			if err := k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, lease); err != nil {
				return err
			}
			if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
				return errors.New("there is none")
			}
			return nil
		})
	}
}

func TestLosingTheLeaseEndsTheProcess(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	node := testkit.Node(t, k, "n1")
	ruleWith(t, k, "a", "vendor.io/a")
	r := startController(t, c, namespace,
		"-enable-leader-election", "-options", "leaderElection: {leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 200ms}")
	labeled(t, k, node.Name, "vendor.io/a", "1")
	other := "somebody-else"
	testkit.Eventually(t, "the lease taken", func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: nfdv1alpha1.LeaseName("")}, lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity = &other
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(3600))
		return k.Update(ctx, lease) // fails if the holder has renewed it
	})
	select {
	case err := <-r.ended:
		r.ended <- err
		if err == nil {
			t.Error("it has ended as if all were well: nothing would tell a kubelet from an end that was asked for")
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on without the lease")
	}
}

// TestTheAnnouncementOfFeatureSetsNamesTheLeader: workers ignore the announcement of a controller that was rolled back.
func TestTheAnnouncementOfFeatureSetsNamesTheLeader(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	names := func() (out string) {
		testkit.Eventually(t, "announcement that names the holder of the Lease", func(ctx context.Context) error {
			lease, marker := &coordinationv1.Lease{}, &corev1.ConfigMap{}
			err := k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: nfdv1alpha1.LeaseName("")}, lease)
			if err := errors.Join(err, k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: assayv1alpha1.FeatureSetMarker}, marker)); err != nil {
				return err
			}
			out = marker.Annotations[assayv1alpha1.AnnouncedByAnnotation]
			if want := lease.Name + "/" + ptr.Deref(lease.Spec.HolderIdentity, ""); out != want || strings.HasSuffix(out, "/") {
				return fmt.Errorf("announced by %q, want %q", out, want)
			}
			return nil
		})
		return out
	}
	first := startController(t, c, namespace, "-enable-leader-election")
	before := names()
	if err := first.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	startController(t, c, namespace, "-enable-leader-election")
	if after := names(); after == before {
		t.Errorf("announced by %s after a restart, want another holder", after)
	}
}

func TestConfigurationIsFollowed(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	node := testkit.Node(t, k, "n1")
	ruleWith(t, k, "a", "vendor.io/a")
	ruleWith(t, k, "b", "other.io/b")
	file := filepath.Join(t.TempDir(), "nfd-master.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	says := func(r *replica, text string) {
		t.Helper()
		testkit.Eventually(t, "log line "+text, func(context.Context) error {
			if !strings.Contains(r.log.String(), text) {
				return errors.New("not there")
			}
			return nil
		})
	}
	write("denyLabelNs: [vendor.io]\nnosuch: 1\n")
	t.Setenv("POD_NAME", "assay-controller-1")
	metrics := testkit.FreeAddress(t)
	r := startController(t, c, namespace, "-config="+file, "-crd-controller", "-metrics-port="+testkit.Port(metrics))
	valid := func(want string) {
		t.Helper()
		testkit.Eventually(t, "assay_configuration_valid "+want, func(ctx context.Context) error {
			text, err := testkit.Get(ctx, "http://"+metrics+"/metrics")
			if err == nil && !strings.Contains(text, "\nassay_configuration_valid "+want+"\n") {
				err = errors.New("it is not")
			}
			return err
		})
	}
	labeled(t, k, node.Name, "other.io/b", "1")
	valid("1")
	labeled(t, k, node.Name, "vendor.io/a", "")
	says(r, "nosuch: unknown key is ignored")
	says(r, "crd-controller has no effect")

	write("denyLabelNs: {\n")
	says(r, "keeping the previous one")
	valid("0")
	testkit.Eventually(t, "an Event about the pod", func(ctx context.Context) error {
		var events corev1.EventList
		if err := k.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "InvalidConfiguration" && e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == "assay-controller-1" &&
				strings.Contains(e.Message, "nfd-master.conf:1:14: ") {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d", len(events.Items))
	})
	write("denyLabelNs: [other.io]\nremovalGracePeriod: 0s\n")
	labeled(t, k, node.Name, "vendor.io/a", "1")
	labeled(t, k, node.Name, "other.io/b", "")
	valid("1")
	if err := r.end(syscall.SIGTERM); err != nil {
		t.Errorf("asked to end: %v", err)
	}
}

// TestTheStartIsLogged: the version, the configuration and the objects in the caches are logged, with --log-format=json as JSON, and
// nothing about the sources of controller-runtime.
func TestTheStartIsLogged(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	testkit.Node(t, k, "logged")
	ruleWith(t, k, "logged", "example.com/logged")
	r := startController(t, c, testkit.Namespace(t, k), "-log-format=json", "-v=0", "-enable-taints")
	lines := map[string]map[string]any{}
	testkit.Eventually(t, "the caches are synced", func(context.Context) error {
		for line := range strings.Lines(r.log.String()) {
			fields := map[string]any{}
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				return fmt.Errorf("%w: %s", err, line)
			}
			lines[fmt.Sprint(fields["msg"])] = fields
		}
		if lines["Synced caches"] == nil {
			return errors.New("they are not")
		}
		return nil
	})
	if got := lines["Starting controller"]; got["version"] == nil || got["config"] == nil || got["enableTaints"] != true {
		t.Errorf("the start is logged as %v", got)
	}
	if got := lines["Synced caches"]; got["nodes"] == nil || got["nodes"] == 0.0 || got["rules"] == nil || got["rules"] == 0.0 {
		t.Errorf("the caches are logged as %v", got)
	}
	for message := range lines {
		if strings.Contains(message, "EventSource") || strings.Contains(message, "workers") {
			t.Errorf("%q is logged", message)
		}
	}
}

func TestAWrongConfigurationIsNotStartedWith(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nfd-master.conf")
	if err := os.WriteFile(file, []byte("noPublish: [1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := newController()
	cmd.SetArgs([]string{"--config=" + file})
	cmd.SetOut(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), ":1:12: noPublish") {
		t.Errorf("error is %v", err)
	}
}

func TestPruneRemovesWhatOneInstanceWrote(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	node := testkit.Node(t, k, "n1")
	ruleWith(t, k, "a", "vendor.io/a")
	blue := startController(t, c, namespace, "-instance=blue")
	labeled(t, k, node.Name, "vendor.io/a", "1")
	shape := &assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: "pruned"}} // of the controller without an instance
	testkit.Create(t, k, shape)
	if err := blue.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	where := []string{"--kubeconfig=" + c.Kubeconfig, "--namespace=" + namespace}
	runPrune(t, io.Discard, append(where, "--instance=green")...)
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(shape), shape); err != nil {
		t.Errorf("another instance prunes NodeShapes: %v", err)
	}
	runPrune(t, io.Discard, where...)
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(shape), shape); !apierrors.IsNotFound(err) {
		t.Errorf("the NodeShape stays: %v", err)
	}
	labeled(t, k, node.Name, "vendor.io/a", "1")
	runPrune(t, io.Discard, append(where, "--instance=blue")...)
	n := labeled(t, k, node.Name, "vendor.io/a", "")
	for key := range n.Annotations {
		if strings.Contains(key, nfdv1alpha1.BookkeepingNamespace) {
			t.Errorf("annotation %s stays", key)
		}
	}
}
