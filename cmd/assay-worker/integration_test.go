package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// logged holds the log of a worker.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a worker for a node until the test ends.
func start(t *testing.T, args ...string) *logged {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	log := &logged{}
	// A sandbox would apply to the process of all tests.
	go func() {
		code <- run(ctx, append(args, "-port=0", "-host-paths=native", "-sandbox=off"), io.Discard, log)
	}()
	t.Cleanup(func() {
		cancel()
		if got := <-code; got != exitOK {
			t.Errorf("exit code = %d", got)
		}
	})
	return log
}

// eventually waits until holds accepts the NodeFeature of a node, and returns it.
// patience is more than it takes until a worker notices a change after its watch was interrupted: it opens the watch again within 30 seconds,
// and if that fails, within another minute.
const patience = 2 * time.Minute

func eventually(t *testing.T, c client.Client, namespace, node, what string, holds func(*nfdv1alpha1.NodeFeature) bool) *nfdv1alpha1.NodeFeature {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var nf nfdv1alpha1.NodeFeature
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: node}, &nf); err == nil && holds(&nf) {
			return &nf
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
	return nil
}

func TestWorkerOnARealAPIServer(t *testing.T) {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	namespace := testkit.Namespace(t, c)
	node := testkit.Node(t, c, "worker-test")
	configFile := filepath.Join(t.TempDir(), "worker.conf")
	writeFile(t, configFile, "core: {sleepInterval: 1h}\n")
	args := []string{"-kubeconfig", user.Kubeconfig, "-namespace", namespace, "-node-name", node.Name, "-config", configFile}
	t.Setenv("POD_NAME", "assay-worker-1")
	log := start(t, args...)

	first := eventually(t, c, namespace, node.Name, "published", func(nf *nfdv1alpha1.NodeFeature) bool {
		return nf.Spec.Features.Attributes["kernel.version"].Elements["full"] != ""
	})
	if owners := first.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != node.UID {
		t.Errorf("owners = %v, want the Node", owners)
	}
	if got := first.Labels[nfdv1alpha1.NodeNameLabel]; got != node.Name {
		t.Errorf("node label = %q", got)
	}

	t.Run("RestartWritesNothing", func(t *testing.T) {
		if code := run(t.Context(), append(args, "-oneshot", "-host-paths=native"), io.Discard, io.Discard); code != exitOK {
			t.Fatalf("exit code = %d", code)
		}
		now := eventually(t, c, namespace, node.Name, "there", func(*nfdv1alpha1.NodeFeature) bool { return true })
		if now.ResourceVersion != first.ResourceVersion {
			t.Errorf("resource version went from %s to %s", first.ResourceVersion, now.ResourceVersion)
		}
	})
	t.Run("TamperingIsRepaired", func(t *testing.T) {
		forged := first.DeepCopy()
		forged.Spec.Labels["forged"] = "true"
		if err := c.Patch(t.Context(), forged, client.MergeFrom(first)); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, namespace, node.Name, "repaired", func(nf *nfdv1alpha1.NodeFeature) bool {
			return nf.ResourceVersion != forged.ResourceVersion && nf.Spec.Labels["forged"] == ""
		})
	})
	t.Run("DeletionIsRepaired", func(t *testing.T) {
		if err := c.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		eventually(t, c, namespace, node.Name, "created again", func(nf *nfdv1alpha1.NodeFeature) bool { return nf.UID != first.UID })
	})
	t.Run("ConfigurationIsReloaded", func(t *testing.T) {
		writeFile(t, configFile, `
core: {sleepInterval: 1h, noPublishFeatures: ["kernel.*"]}
sources:
  custom:
  - name: by rule
    labels: {by-rule: "@system.name.nodename"}
    matchFeatures:
    - feature: kernel.version
      matchExpressions: {major: {op: Ge, value: 2}}
`)
		eventually(t, c, namespace, node.Name, "without kernel features, with the rule's label", func(nf *nfdv1alpha1.NodeFeature) bool {
			_, there := nf.Spec.Features.Attributes["kernel.version"]
			return !there && nf.Spec.Labels["by-rule"] == node.Name
		})
	})
	t.Run("WrongConfigurationIsNot", func(t *testing.T) {
		writeFile(t, configFile, "core: {noPublishFeatures: 5}\n")
		nf := eventually(t, c, namespace, node.Name, "said so", func(*nfdv1alpha1.NodeFeature) bool {
			return strings.Contains(log.String(), "keeping the previous one")
		})
		if nf.Spec.Labels["by-rule"] != node.Name {
			t.Errorf("labels = %v", nf.Spec.Labels)
		}
		eventually(t, c, namespace, node.Name, "with the errors", func(nf *nfdv1alpha1.NodeFeature) bool {
			return strings.Contains(nf.Annotations[assayv1alpha1.InvalidConfigurationAnnotation], ":1:27: core.noPublishFeatures: expected a list of strings")
		})
		writeFile(t, configFile, "core: {sleepInterval: 1h}\n")
		eventually(t, c, namespace, node.Name, "without errors", func(nf *nfdv1alpha1.NodeFeature) bool {
			_, there := nf.Annotations[assayv1alpha1.InvalidConfigurationAnnotation]
			return !there && nf.Spec.Labels["by-rule"] == ""
		})
		var events corev1.EventList
		if err := c.List(t.Context(), &events, client.InNamespace(namespace)); err != nil || len(events.Items) > 0 {
			t.Errorf("a worker creates no Events: %v, %v", events.Items, err)
		}
	})
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
