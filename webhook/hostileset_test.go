//go:build linux

package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/api/policies"
	"github.com/assay-project/assay/internal/testkit"
)

// setOf returns a NodeFeatureSet with the right name.
func setOf(t *testing.T, features *nfdv1alpha1.Features, node string) *unstructured.Unstructured {
	t.Helper()
	name, err := featureset.Name(features)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(&assayv1alpha1.NodeFeatureSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{assayv1alpha1.CreatedByNodeLabel: node}},
		Spec:       assayv1alpha1.NodeFeatureSetSpec{Features: *features},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		t.Fatal(err)
	}
	spec := o.Object["spec"].(map[string]any)["features"].(map[string]any)
	for _, kind := range []string{"flags", "attributes", "instances"} {
		if spec[kind] == nil {
			spec[kind] = map[string]any{}
		}
	}
	o.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK)
	return o
}

// attributes returns the features of a set with n elements.
func attributes(n int, key, value string) *nfdv1alpha1.Features {
	elements := map[string]string{}
	for i := range n {
		elements[fmt.Sprintf(key, i)] = value
	}
	return &nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.config": {Elements: elements}}}
}

// TestAStolenWorkerTokenFillsNoEtcd uses the token of a worker with the Role of the chart, without the webhook. Every set that it can
// create has a name that the controller collects, no finalizer, and with the quota of the chart all sets together take at most 200 MB.
func TestAStolenWorkerTokenFillsNoEtcd(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, node = "assay-hostile-sets", "hostile-n1"
	installPolicies(t, c, policies.Settings{Namespace: ours})
	k := testkit.Client(t, c.User)
	d, owner := newToken(t, c, ours, "assay-worker", node)
	meta := metav1.ObjectMeta{GenerateName: "sets-", Namespace: ours}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: workerRole(t)}
	testkit.Create(t, k, role)
	testkit.Create(t, k, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ours, Name: "assay-worker"}},
	})
	worker := d.Resource(assayv1alpha1.NodeFeatureSetResource).Namespace(ours)
	t.Cleanup(func() {
		if err := k.DeleteAllOf(context.Background(), &assayv1alpha1.NodeFeatureSet{}, client.InNamespace(ours)); err != nil {
			t.Error(err)
		}
	})
	renamed := func(name string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.SetName(name) }
	}
	small := attributes(1, "a%d", "x")
	testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
		o := setOf(t, small, node)
		o.SetName("probe")
		if _, err := worker.Create(ctx, o, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "hexadecimal digits") {
			return fmt.Errorf("a set with any name: %w", err)
		}
		return nil
	})
	instances := func(n int) *nfdv1alpha1.Features {
		list := make([]nfdv1alpha1.InstanceFeature, n)
		for i := range list {
			list[i].Attributes = map[string]string{}
		}
		return &nfdv1alpha1.Features{Instances: map[string]nfdv1alpha1.InstanceFeatureSet{"pci.device": {Elements: list}}}
	}
	const denied = "ValidatingAdmissionPolicy 'assay-node-bound-sets'"
	for name, test := range map[string]struct {
		features *nfdv1alpha1.Features
		edit     func(*unstructured.Unstructured)
		refused  string // empty: created
	}{
		"HonestKernel":    {attributes(10000, "NETFILTER_XT_OPTION_%05d", "m"), nil, ""},
		"HonestInstances": {instances(2000), nil, ""},
		"Largest":         {attributes(1, "a%d", strings.Repeat("x", featureset.MaxBytes-1000)), nil, ""},
		"Quotes":          {attributes(100, "a%03d", `a "quoted" <value> & ü`), nil, ""},
		"NewerVersion":    {small, renamed("kernel-config-v2-" + strings.Repeat("0", 40)), "hexadecimal digits"},
		"NoDigest":        {small, renamed("kernel-config-v1-zz"), "hexadecimal digits"},
		"LongName":        {small, renamed(strings.Repeat("a", 150) + "-v1-" + strings.Repeat("0", 40)), "hexadecimal digits"},
		"Finalizer":       {small, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/forever"}) }, "neither finalizers nor owners"},
		"Owner":           {small, func(o *unstructured.Unstructured) { owned(o, owner) }, "neither finalizers nor owners"},
		"Annotation": {small, func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"a": strings.Repeat("<", 200<<10)})
		}, "no other label or annotation"},
		"Labels": {small, func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{assayv1alpha1.CreatedByNodeLabel: node, "a": "b"})
		}, "no other label or annotation"},
		"LargeValue":         {attributes(1, "a%d", strings.Repeat("x", 1400<<10)), nil, denied},
		"LargeName":          {attributes(1, "a%d"+strings.Repeat("x", 600<<10), "x"), nil, denied},
		"LargeFeature":       {&nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{strings.Repeat("x", 600<<10): {Elements: map[string]nfdv1alpha1.Nil{}}}}, nil, denied},
		"EscapedValue":       {attributes(1, "a%d", strings.Repeat("<", 200<<10)), nil, denied},
		"ControlCharacters":  {attributes(1, "a%d", strings.Repeat("\x01", 200<<10)), nil, denied},
		"Emoji":              {attributes(1, "a%d", strings.Repeat("😀", 300<<10)), nil, denied},
		"ManyElements":       {attributes(100000, "a%07d", "x"), nil, "" + denied},
		"ManyEmptyInstances": {instances(60000), nil, denied},
	} {
		t.Run(name, func(t *testing.T) {
			o := setOf(t, test.features, node)
			if test.edit != nil {
				test.edit(o)
			}
			got, err := worker.Create(t.Context(), o, metav1.CreateOptions{})
			if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
				text := fmt.Sprint(err)
				t.Fatalf("want %q, got %s", test.refused, text[:min(len(text), 500)])
			}
			if err != nil {
				return
			}
			stored, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			const quota, late = 300, 1.1 // worker.maxFeatureSets, and what a ResourceQuota that is late lets through
			if total := float64(len(stored)) * quota * late; total > 200e6 {
				t.Errorf("%d bytes are stored, %.0f MB for all", len(stored), total/1e6)
			}
		})
	}
}
