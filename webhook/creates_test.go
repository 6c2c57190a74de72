//go:build linux

package webhook_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestSizesOfWhatTokensCreate creates objects of each kind that a token of Assay can create, of just less and of more than the size in
// docs/security.md: of Leases and NodeShapes, in their annotations. Policies do not apply to the administrator who does so.
func TestSizesOfWhatTokensCreate(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	if _, err := c.KubectlInput(t.Context(), string(charts.TopologyCRD()), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	const kib = 1 << 10
	text := func(n int) string { return strings.Repeat("x", n) }
	type object = map[string]any
	annotated := func(more object) func(int) object {
		return func(n int) object {
			o := object{"metadata": object{"annotations": object{"a": text(n)}}}
			for key, value := range more {
				o[key] = value
			}
			return o
		}
	}
	for name, tc := range map[string]struct {
		group, version, resource, kind string
		namespaced                     bool
		body                           func(size int) object
		fits, tooLarge                 int
	}{
		"NodeFeature": {"nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", true, func(n int) object {
			return object{"spec": object{"features": object{"attributes": object{"a.b": object{"elements": object{"c": text(n)}}}}}}
		}, 1400 * kib, 1600 * kib},
		"NodeFeatureRule": {"nfd.k8s-sigs.io", "v1alpha1", "nodefeaturerules", "NodeFeatureRule", false, func(n int) object {
			var rules []any
			for range n / (50 * kib) {
				rules = append(rules, object{"name": "r", "labelsTemplate": text(50 * kib)})
			}
			return object{"spec": object{"rules": rules}}
		}, 1400 * kib, 1600 * kib},
		"NodeResourceTopology": {"topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", false, func(n int) object {
			return object{"zones": []any{object{"name": text(n), "type": "Node"}}}
		}, 1400 * kib, 1600 * kib},
		"Event": {"", "v1", "events", "Event", true, func(n int) object {
			return object{"message": text(n), "involvedObject": object{"kind": "Node", "name": "n", "namespace": "default"}}
		}, 1400 * kib, 1600 * kib},
		"ConfigMap": {"", "v1", "configmaps", "ConfigMap", true, func(n int) object {
			return object{"data": object{"a": text(n)}}
		}, 1000 * kib, 1100 * kib},
		"NodeShape": {"assay.dev", "v1alpha1", "nodeshapes", "NodeShape", false, annotated(nil), 250 * kib, 260 * kib},
		"Lease":     {"coordination.k8s.io", "v1", "leases", "Lease", true, annotated(nil), 250 * kib, 260 * kib},
	} {
		t.Run(name, func(t *testing.T) {
			resource := d.Resource(schema.GroupVersionResource{Group: tc.group, Version: tc.version, Resource: tc.resource})
			create := func(name string, size int) error {
				o := &unstructured.Unstructured{Object: tc.body(size)}
				o.SetAPIVersion(schema.GroupVersion{Group: tc.group, Version: tc.version}.String())
				o.SetKind(tc.kind)
				o.SetName(name)
				var r dynamic.ResourceInterface = resource
				if tc.namespaced {
					r = resource.Namespace("default")
				}
				_, err := r.Create(t.Context(), o, metav1.CreateOptions{})
				return err
			}
			if err := create("size-fits", tc.fits); err != nil {
				t.Errorf("%d KiB are rejected: %v", tc.fits/kib, err)
			}
			if err := create("size-too-large", tc.tooLarge); err == nil || apierrors.IsForbidden(err) {
				t.Errorf("%d KiB: %v, want that they are too large", tc.tooLarge/kib, err)
			}
		})
	}
	for group, kind := range map[string]string{"authentication.k8s.io": "TokenReview", "authorization.k8s.io": "SubjectAccessReview"} {
		resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
		if _, err := d.Resource(resource).List(t.Context(), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%ss are stored: %v", kind, err)
		}
	}
}
