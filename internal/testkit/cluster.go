//go:build linux

// Package testkit gives integration tests a control plane.
//
// A package whose tests import it is run by `make test-integration`, and its tests skip themselves otherwise. That is
// decided when the tests run and not by a build tag, so that `go vet`, the linter and every editor see them, and so that
// `go test ./...` compiles each package once.
package testkit

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
)

// cleanUpTime bounds what a test's clean-up may take; the test's own context has ended by then.
const cleanUpTime = 30 * time.Second

// turn gives back the turn that this process has, which it does by ending. It is kept because the lock lasts as long as the
// open file: what nobody refers to is closed by the garbage collector.
var turn func() //nolint:unused // to be kept is its use

// shared attaches this process to a shared control plane, waits for its turn, and cleans up what others left.
var shared = sync.OnceValues(func() (*cluster.Cluster, error) {
	// If `go test` is killed, so shall be this program, and then what it has started.
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

// Cluster returns a control plane that the integration tests of a run share, with Assay's kinds and without any Node. There
// may be several, and packages take turns; the tests of one package see each other's objects unless they remove them. The
// test is skipped if there is no control plane.
//
// A test that kills or pauses a part of the control plane, or starts it with other flags, needs a PrivateCluster. One that
// needs another scheduler does not: see cluster.RunScheduler.
func Cluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	needsCluster(t)
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// PrivateCluster starts a control plane for this test alone, with Assay's kinds, and stops it at the end: 4 to 6 seconds
// and 0.3 to 0.5 GB. It is skipped where Cluster is.
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

// Scheme knows the kinds of Kubernetes and of Assay.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, nfdv1alpha1.AddToScheme, assayv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: a mistake in the code
		}
	}
	return s
})

// Client returns a client that acts as the user, reads from the API server and caches nothing.
func Client(t testing.TB, user *cluster.User) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(user.RESTConfig(), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Namespace makes a namespace of a name not used before, and removes it at the end of the test.
func Namespace(t testing.TB, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Create(t, c, namespace)
	return namespace.Name
}

// Node makes a Node without a kubelet, with room for pods, and removes it at the end of the test.
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

// WebhookObjects creates what an installation creates for the webhook to fill: a Secret, and configurations of these names.
func WebhookObjects(t testing.TB, c client.Client, namespace, secret string, names ...string) {
	t.Helper()
	Create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret}})
	for _, name := range names {
		meta := metav1.ObjectMeta{Name: name}
		Create(t, c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta})
		Create(t, c, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta})
	}
}

// Create makes an object, and removes it at the end of the test.
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

// Eventually waits until the condition, named what in messages, returns nil. If it takes minutes, the test fails with the
// condition's last error.
func Eventually(t testing.TB, what string, condition func(context.Context) error) {
	t.Helper()
	if err := cluster.WaitFor(t.Context(), what, condition); err != nil {
		t.Fatal(err)
	}
}
