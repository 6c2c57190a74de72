//go:build linux

// Package testkit provides a control plane for integration tests.
//
// `make test-integration` runs the tests of packages that import it; elsewhere they are skipped. This is decided at run time and
// not by a build tag, so that `go vet`, linters and editors see the tests, and `go test ./...` compiles each package once.
package testkit

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// cleanUpTime is the maximum duration of a test's cleanup, which runs after the test's context has ended.
const cleanUpTime = 30 * time.Second

// turn releases the lock of this process, which happens when the process ends. It is stored because the garbage collector would
// close the file, and with it the lock, if there were no reference.
var turn func() //nolint:unused // to be kept is its use

// shared connects this process to a shared control plane, waits for its turn, and deletes leftover objects.
var shared = sync.OnceValues(func() (*cluster.Cluster, error) {
	// If `go test` is killed, this program and its child processes must be killed too.
	if err := cluster.EndWithParent(syscall.SIGKILL); err != nil {
		return nil, err
	}
	c, done, err := cluster.TakeTurn(context.Background(), os.Getenv(cluster.DirVar))
	if err != nil {
		return nil, err
	}
	turn = done
	return c, c.Clean(context.Background())
})

// Cluster returns a control plane that the integration tests of a run share, with Assay's CRDs and without Nodes. There may be
// several, and packages take turns. The tests of a package see each other's objects unless they delete them. Cluster skips the test
// if there is no control plane.
//
// A test that kills, pauses or reconfigures a part of the control plane needs a PrivateCluster. A test with another scheduler does
// not: see cluster.RunScheduler.
func Cluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	needsCluster(t)
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// PrivateCluster starts a control plane for this test only, with Assay's CRDs, and stops it at the end of the test. It takes 4 to 6
// seconds and 0.3 to 0.5 GB. PrivateCluster skips the test if there is no control plane.
func PrivateCluster(t testing.TB, opts cluster.Options) *cluster.Cluster {
	t.Helper()
	needsCluster(t)
	opts.Progress = os.Stderr
	c, err := cluster.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func needsCluster(t testing.TB) {
	t.Helper()
	if os.Getenv(cluster.DirVar) == "" {
		t.Skipf("needs a control plane ($%s): run `make test-integration`, or this package by `bin/cluster run -- go test ...`", cluster.DirVar)
	}
}

// Scheme contains the kinds of Kubernetes and Assay.
var Scheme = stage.Scheme

// Client returns a client without a cache that acts as the user.
func Client(t testing.TB, user *cluster.User) client.WithWatch {
	t.Helper()
	c, err := stage.Client(user, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Namespace creates a namespace with a unique name and deletes it at the end of the test.
func Namespace(t testing.TB, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Create(t, c, namespace)
	return namespace.Name
}

// Node creates a Node without a kubelet, with capacity for pods, and deletes it at the end of the test.
func Node(t testing.TB, c client.Client, name string) *corev1.Node {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourcePods:   resource.MustParse("110"), // a kubelet's default
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room.DeepCopy()},
	}
	Create(t, c, node)
	return node
}

// WebhookObjects creates the objects that an installation creates and the webhook updates: a Secret and the named configurations.
func WebhookObjects(t testing.TB, c client.Client, namespace, secret string, names ...string) {
	t.Helper()
	for _, object := range stage.WebhookObjects(namespace, secret, names...) {
		Create(t, c, object)
	}
}

// Create creates an object and deletes it at the end of the test.
func Create(t testing.TB, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpTime)
		defer cancel()
		if err := c.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("remove %T %s: %v", object, object.GetName(), err)
		}
	})
}

// Eventually waits until the condition returns nil. After some minutes the test fails with the condition's last error. what
// describes the condition.
func Eventually(t testing.TB, what string, condition func(context.Context) error) {
	t.Helper()
	if err := cluster.WaitFor(t.Context(), what, condition); err != nil {
		t.Fatal(err)
	}
}
