package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestTakesOverAnObjectWithGranularManagedFields publishes over an object that was stored with NFD's CRD, which has no atomic maps:
// managedFields then contains each of thousands of elements.
func TestTakesOverAnObjectWithGranularManagedFields(t *testing.T) {
	user := testkit.PrivateCluster(t, cluster.Options{})
	c := testkit.Client(t, user.User)
	namespace := testkit.Namespace(t, c)
	node := testkit.Node(t, c, "upgrade")
	makeGranular(t, c)
	awaitManagedFields(t, c, namespace, true)

	old := nodeFeatureOf(namespace, node.Name)
	old.Annotations = map[string]string{nfdv1alpha1.WorkerVersionAnnotation: "v0.18.3"}
	old.Spec.Labels = map[string]string{"from-before": "true", "kernel-version.major": "0"}
	if err := c.Create(t.Context(), old, client.FieldOwner("nfd-worker")); err != nil {
		t.Fatal(err)
	}
	if err := user.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitManagedFields(t, c, namespace, false)
	if now := managedFields(t, c, namespace, node.Name); !strings.Contains(now, `"f:gone"`) {
		t.Fatalf("the stored object has no granular fields to begin with: %s", now)
	}

	config := filepath.Join(t.TempDir(), "worker.conf")
	writeFile(t, config, "{}\n")
	args := []string{"-oneshot", "-kubeconfig", user.Kubeconfig, "-namespace", namespace, "-node-name", node.Name, "-config", config, "-host-paths=native"}
	for range 2 { // the second time it writes nothing
		if code := run(t.Context(), args, io.Discard, io.Discard); code != exitOK {
			t.Fatalf("exit code = %d", code)
		}
	}
	var nf nfdv1alpha1.NodeFeature
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(old), &nf); err != nil {
		t.Fatal(err)
	}
	if _, there := nf.Spec.Features.Attributes["kernel.config"].Elements["gone"]; there || nf.Spec.Labels["from-before"] != "" {
		t.Error("what is no longer found is still there")
	}
	if nf.Spec.Labels["kernel-version.major"] == "0" || nf.UID != old.UID || nf.Generation != old.Generation+1 {
		t.Errorf("not patched once: labels %v, generation %d after %d", nf.Spec.Labels, nf.Generation, old.Generation)
	}
	if now := managedFields(t, c, namespace, node.Name); strings.Contains(now, `"f:gone"`) || strings.Contains(now, `"f:major"`) {
		t.Errorf("fields are still owned one by one: %.500s", now)
	}
}

func nodeFeatureOf(namespace, node string) *nfdv1alpha1.NodeFeature {
	nf := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Name: node, Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
	nf.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{
		"kernel.version": {Elements: map[string]string{"major": "0"}},
		"kernel.config":  {Elements: map[string]string{"gone": "y"}},
	}
	return nf
}

// makeGranular removes the atomic maps from the CRD.
func makeGranular(t *testing.T, c client.Client) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	key := client.ObjectKey{Name: nfdv1alpha1.NodeFeatureResource.GroupResource().String()}
	if err := c.Get(t.Context(), key, crd); err != nil {
		t.Fatal(err)
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "x-kubernetes-map-type")
			for _, child := range v {
				strip(child)
			}
		case []any:
			for _, child := range v {
				strip(child)
			}
		}
	}
	strip(crd.Object["spec"])
	if err := c.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// awaitManagedFields waits until the API server tracks managed fields according to the current CRD.
func awaitManagedFields(t *testing.T, c client.Client, namespace string, granular bool) {
	t.Helper()
	tries := 0
	testkit.Eventually(t, "the definition to be served", func(ctx context.Context) error {
		tries++
		probe := nodeFeatureOf(namespace, fmt.Sprintf("probe-%t-%d", granular, tries))
		if err := c.Create(ctx, probe); err != nil {
			return err
		}
		if strings.Contains(managedFields(t, c, namespace, probe.Name), `"f:gone"`) != granular {
			return errors.New("it is not")
		}
		return nil
	})
}

func managedFields(t *testing.T, c client.Client, namespace, name string) string {
	t.Helper()
	var nf nfdv1alpha1.NodeFeature
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &nf); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range nf.ManagedFields {
		all.WriteString(f.FieldsV1.GetRawString())
	}
	return all.String()
}
