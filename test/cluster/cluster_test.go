//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

func TestServesAssaysKinds(t *testing.T) {
	c := testkit.Cluster(t)
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatalf("applying the definitions once more: %v", err)
	}
	for _, resource := range []string{"nodefeatures", "nfr", "nodefeaturegroups", "nodefeatureruletemplates"} {
		if out, err := c.Kubectl(t.Context(), "get", resource, "--all-namespaces"); err != nil {
			t.Errorf("%v%s", err, out)
		}
	}
}

func TestKnowsUsersByCertificate(t *testing.T) {
	c := testkit.Cluster(t)
	user, err := c.NewUser("system:serviceaccount:test:nobody", "viewers")
	if err != nil {
		t.Fatal(err)
	}
	who, err := user.Kubectl(t.Context(), "auth", "whoami")
	if err != nil || !strings.Contains(who, "viewers") {
		t.Errorf("whoami: %v\n%s", err, who)
	}
	err = testkit.Client(t, user).List(t.Context(), &nfdv1alpha1.NodeFeatureRuleList{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role lists rules: got %v, want it forbidden", err)
	}
}

func TestCleanRemovesWhatOthersWouldNotice(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, api)
	objects := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "left-behind"}},
		&nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: "left-behind", Namespace: namespace}},
	}
	for _, object := range objects {
		testkit.Create(t, api, object)
	}
	if err := c.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T: got %v, want it not found", object, err)
		}
	}
}

func TestProtectsSharedControlPlane(t *testing.T) {
	c := testkit.Cluster(t)
	for name, disturb := range map[string]func() error{
		"Pause":   func() error { return c.Pause(kube.APIServer) },
		"Kill":    func() error { return c.Kill(kube.Etcd) },
		"Restart": func() error { return c.Restart(t.Context(), kube.Scheduler) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := disturb(); err == nil || !strings.Contains(err.Error(), "needs a cluster of its own") {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

func TestRunsSecondScheduler(t *testing.T) {
	c := testkit.Cluster(t)
	config := []byte("profiles: [{schedulerName: second}]\n")
	if err := c.RunScheduler(t.Context(), "second-scheduler", config); err != nil {
		t.Fatal(err)
	}
	api := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, api)
	node := testkit.Node(t, api, "for-second-scheduler")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "asks-for-second", Namespace: namespace},
		Spec: corev1.PodSpec{
			SchedulerName: "second",
			Containers:    []corev1.Container{{Name: "none", Image: "none"}},
		},
	}
	testkit.Eventually(t, "create a pod", func(ctx context.Context) error { // once the ServiceAccount in the namespace exists
		return api.Create(ctx, pod)
	})
	testkit.Eventually(t, "pod is bound", func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Spec.NodeName != node.Name {
			return errors.New("not bound yet")
		}
		return nil
	})
}

func TestKeepsDataOverCrash(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	api := testkit.Client(t, c.User)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "survivor"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{kube.APIServer, kube.Etcd} {
		if err := c.Kill(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err == nil {
		t.Fatal("the API server answers although it was killed")
	}
	for _, name := range []string{kube.Etcd, kube.APIServer} {
		if err := c.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil {
		t.Error(err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	address := strings.TrimPrefix(c.RESTConfig().Host, "https://")
	c.Stop()
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s: got %v, want it gone", c.Dir(), err)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Errorf("something still listens on %s", address)
	}
}

func TestQuotesLogOfWhatDoesNotStart(t *testing.T) {
	if os.Getenv(cluster.DirVar) == "" {
		t.Skip("needs the programs of Kubernetes")
	}
	dir := t.TempDir()
	c, err := cluster.Start(t.Context(), cluster.Options{RunDir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil {
		c.Stop()
		t.Fatal("an API server with an unknown flag started")
	}
	for _, want := range []string{kube.APIServer, "unknown flag: --no-such-flag", dir} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q: %v", want, err)
		}
	}
	if err := cluster.Down(dir); err != nil {
		t.Errorf("remove the directory, which still holds the logs: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s: got %v, want it gone", dir, err)
	}
}

func TestDetachedClusterStaysUntilDown(t *testing.T) {
	if os.Getenv(cluster.DirVar) == "" {
		t.Skip("needs the programs of Kubernetes")
	}
	dir := t.TempDir()
	started, err := cluster.Start(t.Context(), cluster.Options{RunDir: dir, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	c, done, err := cluster.TakeTurn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	impatient, giveUp := context.WithCancelCause(t.Context())
	patienceIsOver := errors.New("patience is over")
	giveUp(patienceIsOver)
	if _, _, err := cluster.TakeTurn(impatient, dir); !errors.Is(err, patienceIsOver) {
		t.Errorf("a cluster that is in use: got %v, want to wait for it", err)
	}
	done()
	if _, again, err := cluster.TakeTurn(impatient, dir); err != nil {
		t.Errorf("a cluster that is free again: %v", err)
	} else {
		again()
	}
	if _, err := c.Kubectl(t.Context(), "get", "namespaces"); err != nil {
		t.Error(err)
	}
	if err := cluster.Down(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := started.Kubectl(t.Context(), "get", "namespaces"); err == nil {
		t.Error("the API server still answers")
	}
	if err := cluster.Down(dir); err != nil {
		t.Errorf("once more: %v", err)
	}
}
