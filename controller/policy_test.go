package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/policies"
	"github.com/assay-project/assay/internal/testkit"
)

// asController returns a configuration with the controller's token and full RBAC permissions: any remaining restriction comes from
// the policy.
func asController(config *rest.Config) *rest.Config {
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + policies.DefaultNamespace + ":" + policies.DefaultManager, Groups: []string{"system:masters"},
	}
	return config
}

// bindController installs the policy on the controller's writes. All tests in this package run with it, and the controller never
// violates it.
func (w *world) bindController() {
	w.Helper()
	policy, binding, _ := bytes.Cut(policies.All(policies.Names{})["recorded-writes.yaml"], []byte("\n---\n"))
	for _, part := range []struct {
		data []byte
		into client.Object
	}{
		{policy, &admissionregistrationv1.ValidatingAdmissionPolicy{}},
		{binding, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}},
	} {
		if err := yaml.UnmarshalStrict(part.data, part.into); err != nil {
			w.Fatal(err)
		}
		testkit.Create(w.T, w, part.into)
	}
}

// TestANodeWithoutCapacityGetsLabelsAndResources: NFD adds to status.capacity, which fails if that is missing, and then writes no
// labels.
func TestANodeWithoutCapacityGetsLabelsAndResources(t *testing.T) {
	w := newWorld(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	testkit.Create(w, w, n)
	w.rule("r", `{rules: [{name: r, labels: {fine: "true"}, extendedResources: {vendor.io/a: "2"}}]}`)
	w.start()
	w.labels("bare", M{"fine": "true"})
	becomes(w, n, "extended resource", func(n *corev1.Node) bool {
		c, a := n.Status.Capacity["vendor.io/a"], n.Status.Allocatable["vendor.io/a"]
		return c.Value() == 2 && a.Value() == 2
	})
}

func TestWhoHasTheControllersTokenWritesOnlyWhatIsRecorded(t *testing.T) {
	w := newWorld(t)
	thief, err := client.New(asController(w.user.RESTConfig()), client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "policy-n1", Labels: map[string]string{"example.com/theirs": "1", "feature.node.kubernetes.io/ours": "true", "vendor.io/ours": "1"},
			Annotations: map[string]string{
				"nfd.node.kubernetes.io/feature-labels": "ours,vendor.io/ours", "nfd.node.kubernetes.io/extended-resources": "vendor.io/cards",
				"nfd.node.kubernetes.io/taints": "vendor.io/ours=x:NoSchedule", "example.com/theirs": "1",
				"assay.dev/node-conditions": "vendor.io/Ours",
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}, {Key: "vendor.io/ours", Value: "x", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Images:    []corev1.ContainerImage{{Names: []string{"example.com/b:1"}}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "vendor.io/Ours", Status: corev1.ConditionTrue},
			},
		},
	}
	testkit.Create(t, w, node)
	try := func(ctx context.Context, as client.Client, body string, subresource ...string) error {
		patch := client.RawPatch(types.MergePatchType, []byte(body))
		if len(subresource) > 0 {
			return as.Status().Patch(ctx, node.DeepCopy(), patch, client.DryRunAll)
		}
		return as.Patch(ctx, node.DeepCopy(), patch, client.DryRunAll)
	}
	testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
		if err := try(ctx, thief, `{"spec":{"unschedulable":true}}`); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the node may be cordoned: %w", err)
		}
		return nil
	})
	const record = "nfd.node.kubernetes.io/feature-labels"
	for name, test := range map[string]struct {
		body    string
		status  bool
		refused string // empty: allowed
	}{
		"cordon":                       {`{"spec":{"unschedulable":true}}`, false, "nothing of a Node's spec but taints"},
		"change of another's label":    {`{"metadata":{"labels":{"example.com/theirs":"2"}}}`, true, "example.com/theirs"},
		"removal of another's label":   {`{"metadata":{"labels":{"example.com/theirs":null}}}`, true, "example.com/theirs"},
		"label without a record":       {`{"metadata":{"labels":{"feature.node.kubernetes.io/new":"1"}}}`, true, "feature.node.kubernetes.io/new"},
		"part of a recorded name":      {`{"metadata":{"labels":{"feature.node.kubernetes.io/our":"1"}}}`, true, "feature.node.kubernetes.io/our"},
		"end of a recorded name":       {`{"metadata":{"labels":{"io/ours":"1"}}}`, true, "io/ours"},
		"another's annotation":         {`{"metadata":{"annotations":{"example.com/theirs":null}}}`, true, "example.com/theirs"},
		"the node's processors":        {`{"status":{"capacity":{"cpu":"1000"}}}`, true, "cpu"},
		"the node's memory":            {`{"status":{"allocatable":{"memory":"1Ti"}}}`, true, "memory"},
		"processors, on record":        {`{"status":{"capacity":{"cpu":"1000"}},"metadata":{"annotations":{"nfd.node.kubernetes.io/extended-resources":"cpu"}}}`, true, "cpu"},
		"health":                       {`{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"vendor.io/Ours","status":"True"}]}}`, true, "Ready"},
		"health, on record":            {`{"status":{"conditions":[{"type":"Ready","status":"False"}]},"metadata":{"annotations":{"assay.dev/node-conditions":"Ready,vendor.io/Ours"}}}`, true, "Kubernetes runs nodes by Ready"},
		"a SIG's condition, on record": {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"readiness.k8s.io/X","status":"True"}]},"metadata":{"annotations":{"assay.dev/node-conditions":"readiness.k8s.io/X,vendor.io/Ours"}}}`, true, "Kubernetes runs nodes by readiness.k8s.io/X"},
		"condition on record":          {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"False"}]}}`, true, ""},
		"removal of its condition":     {`{"status":{"conditions":[{"type":"Ready","status":"True"}]},"metadata":{"annotations":{"assay.dev/node-conditions":null}}}`, true, ""},
		"FeaturesReady, on record":     {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"assay.dev/FeaturesReady","status":"True"}]},"metadata":{"annotations":{"assay.dev/node-conditions":"assay.dev/FeaturesReady,vendor.io/Ours"}}}`, true, ""},
		"port of the kubelet":          {`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1234}}}}`, true, "daemonEndpoints"},
		"attached volumes":             {`{"status":{"volumesAttached":[{"name":"v","devicePath":"/dev/x"}]}}`, true, "volumesAttached"},
		"volumes in use":               {`{"status":{"volumesInUse":["v"]}}`, true, "volumesInUse"},
		"versions":                     {`{"status":{"nodeInfo":{"kubeletVersion":"v9"}}}`, true, "nodeInfo"},
		"images":                       {`{"status":{"images":[{"names":["example.com/a:1"]}]}}`, true, "images"},
		"handlers":                     {`{"status":{"runtimeHandlers":[{"name":"kata"}]}}`, true, "runtimeHandlers"},
		"features of the runtime":      {`{"status":{"features":{"supplementalGroupsPolicy":true}}}`, true, "features"},
		"phase":                        {`{"status":{"phase":"Terminated"}}`, true, "phase"},
		"declared features":            {`{"status":{"declaredFeatures":["X"]}}`, true, "declaredFeatures"},
		"removal of images":            {`{"status":{"images":null}}`, true, "images"},
		"removal of addresses":         {`{"status":{"addresses":null}}`, true, "addresses"},
		"removal of conditions":        {`{"status":{"conditions":null}}`, true, "Ready"},
		"a new condition":              {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"vendor.io/Mine","status":"True"}]}}`, true, "vendor.io/Mine"},
		"everything":                   {`{"status":null}`, true, "Ready"},
		"addresses":                    {`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`, true, "nothing of a Node's status"},
		"no taints":                    {`{"spec":{"taints":[]}}`, false, "example.com/theirs:NoSchedule"},
		"taint without a record":       {`{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"},{"key":"x.io/y","effect":"NoExecute"}]}}`, false, "x.io/y:NoExecute"},
		"finalizer":                    {`{"metadata":{"finalizers":["example.com/forever"]}}`, false, "finalizers"},
		"control plane, on record":     {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""},"annotations":{"` + record + `":"node-role.kubernetes.io/control-plane"}}}`, true, "node-role.kubernetes.io/control-plane"},
		"isolation, on record":         {`{"metadata":{"labels":{"x.node-restriction.kubernetes.io/y":""},"annotations":{"` + record + `":"x.node-restriction.kubernetes.io/y"}}}`, true, "x.node-restriction.kubernetes.io/y"},
		"host name, on record":         {`{"metadata":{"labels":{"kubernetes.io/hostname":"n2"},"annotations":{"` + record + `":"kubernetes.io/hostname"}}}`, true, "kubernetes.io/hostname"},
		"label on record":              {`{"metadata":{"labels":{"feature.node.kubernetes.io/new":"1"},"annotations":{"` + record + `":"new,ours,vendor.io/ours"}}}`, true, ""},
		"label of a vendor, on record": {`{"metadata":{"labels":{"vendor.io/ours":"2"}}}`, true, ""},
		"removal of what is its own":   {`{"metadata":{"labels":{"feature.node.kubernetes.io/ours":null},"annotations":{"` + record + `":"vendor.io/ours"}}}`, true, ""},
		"another instance's record":    {`{"metadata":{"labels":{"feature.node.kubernetes.io/new":"1"},"annotations":{"two.` + record + `":"new"}}}`, true, ""},
		"resource on record":           {`{"status":{"capacity":{"vendor.io/cards":"4"},"allocatable":{"vendor.io/cards":"4"}}}`, true, ""},
		"taint on record":              {`{"spec":{"taints":[{"key":"example.com/theirs","effect":"NoSchedule"}]},"metadata":{"annotations":{"nfd.node.kubernetes.io/taints":null}}}`, false, ""},
		"nudge of a scheduler":         {`{"metadata":{"annotations":{"assay.dev/features-generation":"7"}}}`, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sub []string
			if test.status {
				sub = []string{"status"}
			}
			err := try(t.Context(), thief, test.body, sub...)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("got %v, want a refusal that names %q", err, test.refused)
			}
			if err := try(t.Context(), w, test.body, sub...); err != nil {
				t.Errorf("an administrator is rejected: %v", err)
			}
		})
	}
}

// TestPolicyBearsManyLabels: the API server limits the cost of a policy, and a policy over the limit would block the controller.
func TestPolicyBearsManyLabels(t *testing.T) {
	w := newWorld(t)
	as, err := client.New(asController(w.user.RESTConfig()), client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policy-n1"}}
	testkit.Create(t, w, node)
	testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
		err := as.Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`)), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the node may be cordoned: %w", err)
		}
		return nil
	})
	var names []string
	labels := map[string]string{}
	for i := range manyLabels {
		name := fmt.Sprintf("kernel-config.OPTION_%d", i)
		names = append(names, name)
		labels[feature+name] = "true"
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": labels, "annotations": map[string]string{"nfd.node.kubernetes.io/feature-labels": strings.Join(names, ",")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, fmt.Sprintf("%d labels at once are written", manyLabels), func(ctx context.Context) error {
		err := as.Status().Patch(ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, body))
		if err != nil && !apierrors.IsTimeout(err) { // a slow machine needs several attempts, a policy over the limit always fails
			t.Fatal(err)
		}
		return err
	})
}

// manyLabels is more than fit in rules.MaxLabels.
const manyLabels = 2500
