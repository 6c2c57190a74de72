//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"golang.org/x/sys/unix"
)

// DirVar is the environment variable with the directories of control planes that tests share: one or more, separated by colons as
// in PATH.
const DirVar = "ASSAY_CLUSTER"

// SharedOptions are the options of the control plane that the integration tests share: everything that works without a real node.
func SharedOptions() Options {
	return Options{Scheduler: true, ControllerManager: true, FakeNodes: true}
}

// turnFile is locked by the process that uses a shared cluster.
const turnFile = "turn"

// errInUse is the error while waiting for a cluster.
var errInUse = errors.New("every cluster is in use")

// TakeTurn attaches to one of the clusters in a list of directories, see DirVar, that no other process uses. It waits for one, and
// keeps it until this process ends or calls done. Tests cannot share a cluster at the same time, since rules and Nodes are
// cluster-scoped and the controllers of two tests would interfere.
func TakeTurn(ctx context.Context, dirs string) (c *Cluster, done func(), err error) {
	err = poll(ctx, func(context.Context) error {
		for _, dir := range filepath.SplitList(dirs) {
			free, err := takeTurn(dir)
			if err != nil {
				return permanentError{err}
			}
			if free == nil {
				continue
			}
			if c, err = Attach(dir); err != nil {
				free()
				return permanentError{err}
			}
			done = free
			return nil
		}
		return errInUse
	})
	return c, done, err
}

// takeTurn takes the cluster in a directory; done is nil if another process uses it.
func takeTurn(dir string) (done func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, turnFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return func() { _ = file.Close() }, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, file.Close()
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
}

// cleaned lists what Clean removes in addition to Assay's own kinds. Webhooks and policies come first: one whose server has stopped
// would reject other deletions.
var cleaned = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	{Version: "v1", Resource: "nodes"},
}

// Clean removes objects of earlier tests that could affect others: Nodes, admission webhooks and policies, and all objects of
// Assay's kinds. Namespaces are kept, since deleting them takes seconds and their names are unique.
func (c *Cluster) Clean(ctx context.Context) error {
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	kinds, err := ownKinds()
	if err != nil {
		return err
	}
	for _, resource := range append(append([]schema.GroupVersionResource{}, cleaned...), kinds...) {
		if err := c.removeAll(ctx, client.Resource(resource), resource); err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes all objects of a resource, in all namespaces, and waits until they are deleted.
func (c *Cluster) removeAll(ctx context.Context, client dynamic.NamespaceableResourceInterface, resource schema.GroupVersionResource) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the CRD was never applied
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	for _, object := range list.Items {
		err := client.Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", resource.Resource, object.GetName(), err)
		}
	}
	if len(list.Items) == 0 {
		return nil
	}
	return WaitFor(ctx, "removal of all "+resource.Resource, func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, object := range list.Items {
			left = append(left, object.GetName())
		}
		if len(left) > 0 {
			return fmt.Errorf("still there: %s", strings.Join(left, ", "))
		}
		return nil
	})
}
