//go:build linux

package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/hack/kustomize"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
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

// setWorker returns clients with the token of a worker on a node, with the Role of the chart, and deletes the sets of the namespace at
// the end of the test.
func setWorker(t *testing.T, c *cluster.Cluster, namespace, node string) (dynamic.ResourceInterface, *corev1.Node, *publish.Client) {
	t.Helper()
	k := testkit.Client(t, c.User)
	config, owner := newTokenConfig(t, c, namespace, kustomize.Worker, node)
	meta := metav1.ObjectMeta{GenerateName: "sets-", Namespace: namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: workerRole(t)}
	testkit.Create(t, k, role)
	testkit.Create(t, k, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: kustomize.Worker}},
	})
	t.Cleanup(func() {
		if err := k.DeleteAllOf(context.Background(), &assayv1alpha1.NodeFeatureSet{}, client.InNamespace(namespace)); err != nil {
			t.Error(err)
		}
	})
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := publish.NewClient(&publish.Config{Server: config.Host, CA: config.CAData, Token: config.BearerToken})
	if err != nil {
		t.Fatal(err)
	}
	return d.Resource(assayv1alpha1.NodeFeatureSetResource).Namespace(namespace), owner, p
}

// TestAStolenWorkerTokenFillsNoEtcd uses the token of a worker with the Role of the chart, without the webhook. Every set that it can
// create has a name that the controller collects, no finalizer, and with the quota of the chart all sets together take at most 200 MB.
func TestAStolenWorkerTokenFillsNoEtcd(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, node = "assay-hostile-sets", "hostile-n1"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	worker, owner, _ := setWorker(t, c, ours, node)
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
		"LargeValue":         {attributes(1, "a%d", strings.Repeat("x", 1400<<10)), nil, "may not be more than"},
		"LargeName":          {attributes(1, "a%d"+strings.Repeat("x", 600<<10), "x"), nil, denied},
		"LargeFeature":       {&nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{strings.Repeat("x", 600<<10): {Elements: map[string]nfdv1alpha1.Nil{}}}}, nil, denied},
		"EscapedValue":       {attributes(1, "a%d", strings.Repeat("<", 200<<10)), nil, denied},
		"ControlCharacters":  {attributes(1, "a%d", strings.Repeat("\x01", 200<<10)), nil, denied},
		"Emoji":              {attributes(1, "a%d", strings.Repeat("😀", 200<<10)), nil, denied},
		"ManyElements":       {attributes(100000, "a%07d", "x"), nil, "must have at most"},
		"ManyEmptyInstances": {instances(60000), nil, "must have at most"},
		"LongInstances":      {instances(40000), nil, denied},
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

// TestHonestWorkersPublishWhileTheQuotaIsFull has the token of a worker create sets until the quota of the chart refuses them, without
// the webhook and the controller. Another worker then publishes all of its features.
func TestHonestWorkersPublishWhileTheQuotaIsFull(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, node = "assay-full-quota", "full-quota-n1"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	k := testkit.Client(t, c.User)
	hostile, _, _ := setWorker(t, c, ours, node)
	_, honestNode, honest := setWorker(t, c, ours, "full-quota-n2")
	quota := &corev1.ResourceQuota{}
	rendered(t, "ResourceQuota", kustomize.Worker, quota)
	quota.Namespace = ours
	testkit.Create(t, k, quota)
	// Kubernetes counts a new quota only after up to 5 minutes, and refuses all objects until then.
	before := quota.DeepCopy()
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{}}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if err := k.Status().Patch(t.Context(), quota, client.MergeFrom(before)); err != nil { // Kubernetes may write in between
		t.Fatal(err)
	}
	testkit.Create(t, k, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: ours, Name: assayv1alpha1.FeatureSetMarker, Annotations: featureset.Announcement(),
	}})
	create := func(i int) error {
		_, err := hostile.Create(t.Context(), setOf(t, attributes(1, "a%d", fmt.Sprint(i)), node), metav1.CreateOptions{})
		return err
	}
	testkit.Eventually(t, "the first set", func(context.Context) error { return create(-1) })
	limit := quota.Spec.Hard.Name("count/nodefeaturesets.assay.dev", resource.DecimalSI).Value()
	if limit == 0 {
		t.Fatal("the quota of the chart does not limit sets")
	}
	var refused atomic.Int64
	var g errgroup.Group
	const attempts, clients = 1000, 8
	for first := range clients {
		g.Go(func() error {
			for i := first; i < attempts; i += clients {
				if err := create(i); apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") {
					refused.Add(1)
				} else if err != nil && !apierrors.IsConflict(err) {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var sets assayv1alpha1.NodeFeatureSetList
	if err := k.List(t.Context(), &sets, client.InNamespace(ours)); err != nil {
		t.Fatal(err)
	}
	if most := limit + limit/10; int64(len(sets.Items)) > most || refused.Load() == 0 {
		t.Errorf("%d sets of %d attempts were created and %d refused, want at most %d", len(sets.Items), attempts, refused.Load(), most)
	}

	content := publish.Content{Features: *attributes(5000, "CONFIG_%05d", "y")}
	p := publish.New(honest, publish.Options{
		Namespace: ours, Share: true, Rand: func() float64 { return 0 },
		Identify: func(context.Context) (publish.Identity, error) {
			return publish.Identity{Node: honestNode.Name, NodeUID: string(honestNode.UID)}, nil
		},
	})
	if _, err := p.Publish(t.Context(), content); err != nil {
		t.Fatal(err)
	}
	var published nfdv1alpha1.NodeFeature
	if err := k.Get(t.Context(), client.ObjectKey{Namespace: ours, Name: honestNode.Name}, &published); err != nil {
		t.Fatal(err)
	}
	if got, want := published.Spec.Features.Attributes["kernel.config"].Elements, content.Features.Attributes["kernel.config"].Elements; !maps.Equal(got, want) {
		t.Errorf("%d elements are published, want all %d", len(got), len(want))
	}
}
