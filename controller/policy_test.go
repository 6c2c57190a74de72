package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
)

// asController returns a configuration with the controller's token and full RBAC permissions: any remaining restriction comes from
// the policy.
func asController(config *rest.Config) *rest.Config {
	return asAccount(config, charts.DefaultNamespace, charts.DefaultManager)
}

// asAccount is like asController, with the token of another ServiceAccount.
func asAccount(config *rest.Config, namespace, account string) *rest.Config {
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account, Groups: []string{"system:masters"}}
	return config
}

// writePolicy returns the policy on the controller's writes and its binding.
func (w *world) writePolicy(settings charts.PolicySettings) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	w.Helper()
	data, bound, _ := bytes.Cut(charts.Policies(settings)["node-writes.yaml"], []byte("\n---\n"))
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := errors.Join(yaml.UnmarshalStrict(data, policy), yaml.UnmarshalStrict(bound, binding)); err != nil {
		w.Fatal(err)
	}
	return policy, binding
}

// bindController installs the policy on the controller's writes. All tests in this package run with it, and the controller never
// violates it.
func (w *world) bindController() {
	w.Helper()
	policy, binding := w.writePolicy(charts.PolicySettings{})
	testkit.Create(w.T, w, policy)
	testkit.Create(w.T, w, binding)
}

// setPolicy changes the settings of that policy.
func (w *world) setPolicy(settings charts.PolicySettings) {
	w.Helper()
	with, _ := w.writePolicy(settings)
	change(w, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: with.Name}},
		func(p *admissionregistrationv1.ValidatingAdmissionPolicy) { p.Spec = with.Spec })
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

// writes are requests with the controller's token on the Node of policyNode, and what refuses them: by default, and with settings that
// allow two namespaces and name the controller's taints. Empty: nothing.
var writes = map[string]struct {
	body                string
	status              bool
	refused, inSettings string
}{
	"cordon":                        {`{"spec":{"unschedulable":true}}`, false, "nothing of a Node's spec but taints", "nothing of a Node's spec"},
	"provider":                      {`{"spec":{"providerID":"x://y"}}`, false, "nothing of a Node's spec but taints", "nothing of a Node's spec"},
	"pod network":                   {`{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`, false, "nothing of a Node's spec but taints", "nothing of a Node's spec"},
	"feature label":                 {`{"metadata":{"labels":{"feature.node.kubernetes.io/new":"1"}}}`, true, "", ""},
	"removal of a feature label":    {`{"metadata":{"labels":{"feature.node.kubernetes.io/ours":null}}}`, true, "", ""},
	"label of a request":            {`{"metadata":{"labels":{"features.assay.dev/a.b":"true"}}}`, true, "", ""},
	"label of an allowed namespace": {`{"metadata":{"labels":{"vendor.io/ours":"2"}}}`, true, "", ""},
	"label below a suffix":          {`{"metadata":{"labels":{"a.example.org/x":"1"}}}`, true, "", ""},
	"label of the suffix itself":    {`{"metadata":{"labels":{"example.org/x":"1"}}}`, true, "", "policies.namespaces does not allow example.org/x"},
	"end of an allowed namespace":   {`{"metadata":{"labels":{"io/ours":"1"}}}`, true, "", "io/ours"},
	"below an allowed namespace":    {`{"metadata":{"labels":{"a.vendor.io/x":"1"}}}`, true, "", "a.vendor.io/x"},
	"bare label":                    {`{"metadata":{"labels":{"bare":"1"}}}`, true, "", "bare"},
	"change of another's label":     {`{"metadata":{"labels":{"example.com/theirs":"2"}}}`, true, "", "example.com/theirs"},
	"removal of another's label":    {`{"metadata":{"labels":{"example.com/theirs":null}}}`, true, "", "example.com/theirs"},
	"the same on the main resource": {`{"metadata":{"labels":{"example.com/theirs":null}}}`, false, "", "example.com/theirs"},
	"control plane":                 {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, true, "node-role.kubernetes.io/control-plane", "node-role"},
	"isolation":                     {`{"metadata":{"labels":{"x.node-restriction.kubernetes.io/y":""}}}`, true, "x.node-restriction.kubernetes.io/y", "node-restriction"},
	"zone":                          {`{"metadata":{"labels":{"topology.kubernetes.io/zone":"b"}}}`, true, "topology.kubernetes.io/zone", "topology"},
	"host name":                     {`{"metadata":{"labels":{"kubernetes.io/hostname":"n2"}}}`, true, "kubernetes.io/hostname", "kubernetes.io/hostname"},
	"scope":                         {`{"metadata":{"labels":{"assay.dev/scope":"x"}}}`, true, "assay.dev/scope", "assay.dev/scope"},
	"condition as a label":          {`{"metadata":{"labels":{"assay.dev/FeaturesReady":"True"}}}`, true, "assay.dev/FeaturesReady", "assay.dev/FeaturesReady"},

	"another's annotation":      {`{"metadata":{"annotations":{"example.com/theirs":null}}}`, true, "", "example.com/theirs"},
	"annotation of a feature":   {`{"metadata":{"annotations":{"feature.node.kubernetes.io/x":"1"}}}`, true, "", ""},
	"the record":                {`{"metadata":{"annotations":{"nfd.node.kubernetes.io/feature-labels":"vendor.io/ours"}}}`, true, "", ""},
	"another instance's record": {`{"metadata":{"annotations":{"two.nfd.node.kubernetes.io/feature-labels":"new"}}}`, true, "", ""},
	"notice to a scheduler":     {`{"metadata":{"annotations":{"assay.dev/features-generation":"7"}}}`, true, "", ""},
	"last applied":              {`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`, true, "last-applied", "last-applied"},
	"protected from removal":    {`{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}}}`, true, "scale-down-disabled", "scale-down-disabled"},

	"the node's processors":      {`{"status":{"capacity":{"cpu":"1000"}}}`, true, "cpu", "cpu"},
	"the node's memory":          {`{"status":{"allocatable":{"memory":"1Ti"}}}`, true, "memory", "memory"},
	"resource":                   {`{"status":{"capacity":{"vendor.io/cards":"4"},"allocatable":{"vendor.io/cards":"4"}}}`, true, "", ""},
	"removal of its resource":    {`{"status":{"capacity":{"vendor.io/cards":null}}}`, true, "", ""},
	"another's resource":         {`{"status":{"capacity":{"example.com/theirs":"4"}}}`, true, "", "example.com/theirs"},
	"health":                     {`{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"vendor.io/Ours","status":"True"}]}}`, true, "Kubernetes runs nodes by Ready", "Ready"},
	"a SIG's condition":          {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"readiness.k8s.io/X","status":"True"}]}}`, true, "readiness.k8s.io/X", "readiness.k8s.io/X"},
	"its condition":              {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"False"}]}}`, true, "", ""},
	"removal of its condition":   {`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, true, "", ""},
	"another's condition":        {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"example.com/X","status":"True"}]}}`, true, "", "example.com/X"},
	"FeaturesReady":              {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"assay.dev/FeaturesReady","status":"True"}]}}`, true, "", ""},
	"another condition of Assay": {`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"vendor.io/Ours","status":"True"},{"type":"assay.dev/X","status":"True"}]}}`, true, "assay.dev/X", "assay.dev/X"},
	"removal of conditions":      {`{"status":{"conditions":null}}`, true, "Ready", "Ready"},
	"port of the kubelet":        {`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1234}}}}`, true, "daemonEndpoints", "daemonEndpoints"},
	"attached volumes":           {`{"status":{"volumesAttached":[{"name":"v","devicePath":"/dev/x"}]}}`, true, "volumesAttached", "volumesAttached"},
	"volumes in use":             {`{"status":{"volumesInUse":["v"]}}`, true, "volumesInUse", "volumesInUse"},
	"versions":                   {`{"status":{"nodeInfo":{"kubeletVersion":"v9"}}}`, true, "nodeInfo", "nodeInfo"},
	"images":                     {`{"status":{"images":[{"names":["example.com/a:1"]}]}}`, true, "images", "images"},
	"handlers":                   {`{"status":{"runtimeHandlers":[{"name":"kata"}]}}`, true, "runtimeHandlers", "runtimeHandlers"},
	"features of the runtime":    {`{"status":{"features":{"supplementalGroupsPolicy":true}}}`, true, "features", "features"},
	"phase":                      {`{"status":{"phase":"Terminated"}}`, true, "phase", "phase"},
	"declared features":          {`{"status":{"declaredFeatures":["X"]}}`, true, "declaredFeatures", "declaredFeatures"},
	"removal of images":          {`{"status":{"images":null}}`, true, "images", "images"},
	"removal of addresses":       {`{"status":{"addresses":null}}`, true, "addresses", "addresses"},
	"addresses":                  {`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}}`, true, "nothing of a Node's status", "nothing of a Node's status"},
	"everything":                 {`{"status":null}`, true, "Ready", "Ready"},

	"another's taint":               {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"example.com/y","effect":"NoExecute"}]}}`, false, "", "example.com/y"},
	"removal of another's taint":    {`{"spec":{"taints":[` + pending + `,` + ours + `]}}`, false, "", "example.com/theirs"},
	"removal of its taint":          {`{"spec":{"taints":[` + theirs + `,` + pending + `]}}`, false, "", ""},
	"change of its taint":           {`{"spec":{"taints":[` + theirs + `,` + pending + `,{"key":"vendor.io/ours","value":"y","effect":"NoSchedule"}]}}`, false, "", ""},
	"removal of the start-up taint": {`{"spec":{"taints":[` + theirs + `,` + ours + `]}}`, false, "startup-taint.cluster-autoscaler.kubernetes.io/features", ""},
	"another start-up taint":        {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"startup-taint.cluster-autoscaler.kubernetes.io/features","effect":"NoExecute"}]}}`, false, "startup-taint.cluster-autoscaler.kubernetes.io/features", "startup-taint.cluster-autoscaler.kubernetes.io/features"},
	"another value of that":         {`{"spec":{"taints":[` + theirs + `,` + ours + `,{"key":"startup-taint.cluster-autoscaler.kubernetes.io/features","value":"x","effect":"NoSchedule"}]}}`, false, "startup-taint.cluster-autoscaler.kubernetes.io/features", "startup-taint.cluster-autoscaler.kubernetes.io/features"},
	"another taint of Assay":        {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"assay.dev/x","effect":"NoExecute"}]}}`, false, "assay.dev/x", "assay.dev/x"},
	"the taint of failed nodes":     {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"example.net/failed","effect":"NoSchedule"}]}}`, false, "", ""},
	"a taint of the node lifecycle": {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]}}`, false, "node.kubernetes.io/unreachable", "unreachable"},
	"a taint of Cluster Autoscaler": {`{"spec":{"taints":[` + theirs + `,` + pending + `,` + ours + `,{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]}}`, false, "ToBeDeleted", "ToBeDeleted"},

	"finalizer":             {`{"metadata":{"finalizers":["example.com/forever"]}}`, false, "finalizers", "finalizers"},
	"finalizer, in status":  {`{"metadata":{"finalizers":["example.com/forever"]}}`, true, "finalizers", "finalizers"},
	"another owner":         {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"2"}]}}`, false, "owners", "owners"},
	"another owner, status": {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"2"}]}}`, true, "owners", "owners"},
	"no owner":              {`{"metadata":{"ownerReferences":null}}`, false, "owners", "owners"},
}

// The taints of policyNode.
const (
	theirs  = `{"key":"example.com/theirs","effect":"NoSchedule"}`
	pending = `{"key":"startup-taint.cluster-autoscaler.kubernetes.io/features","effect":"NoSchedule"}`
	ours    = `{"key":"vendor.io/ours","value":"x","effect":"NoSchedule"}`
)

func policyNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "policy-n1", Labels: map[string]string{"example.com/theirs": "1", "feature.node.kubernetes.io/ours": "true", "vendor.io/ours": "1"},
			Annotations:     map[string]string{"nfd.node.kubernetes.io/feature-labels": "ours,vendor.io/ours", "example.com/theirs": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Machine", Name: "m", UID: "1"}},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule}, {Key: "startup-taint.cluster-autoscaler.kubernetes.io/features", Effect: corev1.TaintEffectNoSchedule},
			{Key: "vendor.io/ours", Value: "x", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Images:    []corev1.ContainerImage{{Names: []string{"example.com/b:1"}}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Capacity:  corev1.ResourceList{"vendor.io/cards": resource.MustParse("1")},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "vendor.io/Ours", Status: corev1.ConditionTrue},
			},
		},
	}
}

// TestTheControllersTokenWritesOnlyWhatRulesMayWrite uses the token of the controller with all permissions, so that the policy alone
// refuses a request.
func TestTheControllersTokenWritesOnlyWhatRulesMayWrite(t *testing.T) {
	w := newWorld(t)
	thief, err := client.New(asController(w.user.RESTConfig()), client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	node := policyNode()
	testkit.Create(t, w, node)
	try := func(ctx context.Context, as client.Client, body string, status bool) error {
		patch := client.RawPatch(types.MergePatchType, []byte(body))
		if status {
			return as.Status().Patch(ctx, node.DeepCopy(), patch, client.DryRunAll)
		}
		return as.Patch(ctx, node.DeepCopy(), patch, client.DryRunAll)
	}
	all := func(probe, by string, refused func(name string) string) {
		testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
			if err := try(ctx, thief, writes[probe].body, writes[probe].status); err == nil || !strings.Contains(err.Error(), by) {
				return fmt.Errorf("%s: want %q, got %w", probe, by, err)
			}
			return nil
		})
		for name, test := range writes {
			err, want := try(t.Context(), thief, test.body, test.status), refused(name)
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: refused: %v", name, err)
			case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: got %v, want a refusal that names %q", name, err, want)
			}
			if err := try(t.Context(), w, test.body, test.status); err != nil {
				t.Errorf("%s: an administrator is rejected: %v", name, err)
			}
		}
	}
	all("cordon", writes["cordon"].refused, func(name string) string { return writes[name].refused })
	w.setPolicy(charts.PolicySettings{
		Namespaces: []string{"vendor.io", ".example.org"}, StartupTaint: "startup-taint.cluster-autoscaler.kubernetes.io/features", OwnTaints: []string{"example.net/failed"},
	})
	all("bare label", "policies.namespaces", func(name string) string { return writes[name].inSettings })
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
