package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestDefinitionsAreApplied runs what the chart's hook runs: over definitions of Assay, of another program with the annotation of a newer version
// of Assay, as a server-side apply of NFD's leaves it, of a newer version, and without any.
func TestDefinitionsAreApplied(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{DisableAdmission: []string{"ServiceAccount"}})
	api := testkit.Client(t, c.User)
	const name = definition.Rules
	apply := func(want string) *unstructured.Unstructured {
		t.Helper()
		var out bytes.Buffer
		if err := applyDefinitions(t.Context(), api, &out); err != nil {
			t.Fatal(err)
		}
		if line := "CustomResourceDefinition " + name + ": " + want + "\n"; !strings.Contains(out.String(), line) || strings.Count(out.String(), "\n") != len(charts.CRDs()) {
			t.Errorf("the output lacks %q:\n%s", line, out.String())
		}
		return crd(t, api, name)
	}
	version := func(o *unstructured.Unstructured, version string) {
		o.SetAnnotations(map[string]string{assayv1alpha1.DefinitionVersionAnnotation: version})
	}
	whole := func(o *unstructured.Unstructured) {
		t.Helper()
		if status, err := definition.Of(o); err != nil || status.State != definition.Whole {
			t.Errorf("the definition is %s, %v", status.State, err)
		}
	}
	update := func(change func(*unstructured.Unstructured)) {
		t.Helper()
		o := crd(t, api, name)
		change(o)
		if err := api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	whole(apply("applied"))

	update(func(o *unstructured.Unstructured) { version(o, "99") })
	if o := apply("left as it is: its version 99 is newer than 1, that of this program"); o.GetAnnotations()[assayv1alpha1.DefinitionVersionAnnotation] != "99" {
		t.Error("a newer definition was replaced")
	}
	update(func(o *unstructured.Unstructured) { // the annotation is still that of the newer version
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "description")
		if err := unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	})
	if o := apply("applied"); o.GetAnnotations()[assayv1alpha1.DefinitionVersionAnnotation] != "1" {
		t.Error("the definition does not have the version of this program")
	} else {
		whole(o)
	}
	if err := api.Delete(t.Context(), crd(t, api, name)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of the definition", func(ctx context.Context) error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(definition.Kind)
		if err := api.Get(ctx, client.ObjectKey{Name: name}, o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %w", err)
		}
		return nil
	})
	whole(apply("created"))
	managers := crd(t, api, name).GetManagedFields()
	if !slices.ContainsFunc(managers, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == definitionsManager && m.Operation == "Apply"
	}) {
		t.Errorf("the managers are %v", managers)
	}
}

// crd reads a definition.
func crd(t *testing.T, api client.Client, name string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(definition.Kind)
	if err := api.Get(t.Context(), client.ObjectKey{Name: name}, out); err != nil {
		t.Fatal(err)
	}
	return out
}
