//go:build linux

package scheduling

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// deschedulerPolicy is the policy of docs/scheduling.md.
const deschedulerPolicy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: features
  pluginConfig:
  - name: RemovePodsViolatingNodeAffinity
    args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeAffinity]}
`

// TestTheDeschedulerMovesPodsOffANodeThatLostAFeature runs the real descheduler, which $ASSAY_DESCHEDULER names: make test-descheduler
// builds it. Pods require a label that a rule writes by node affinity, and a PodDisruptionBudget lets one of them go at a time. Pods
// that have the label only in their node selector stay, as the documentation says.
func TestTheDeschedulerMovesPodsOffANodeThatLostAFeature(t *testing.T) {
	descheduler := os.Getenv("ASSAY_DESCHEDULER")
	if descheduler == "" {
		t.Skip("needs the descheduler: run make test-descheduler")
	}
	c := testkit.PrivateCluster(t, cluster.Options{
		FakeNodes: true, Scheduler: true, ControllerManager: true, DisableAdmission: []string{"ServiceAccount"},
	})
	in := &installation{Cluster: c, api: testkit.Client(t, c.User), bin: programs(t)}
	in.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})
	in.create(t, avxRule())
	runManager(t, c, in.bin, stage.Controller)
	for node, flags := range map[string][]string{"n1": {"AVX"}, "n2": nil} {
		in.create(t, bigNode(node))
		in.create(t, nodeFeature(node, flags...))
	}
	in.labeled(t, "n1", true)
	app := in.app(t, "affinity", func(p *corev1.PodSpec) {
		p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: avxLabel, Operator: corev1.NodeSelectorOpExists}},
			}}},
		}}
	})
	selector := in.app(t, "selector", func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{avxLabel: "true"} })
	before := in.runsOn(t, app, "n1", "n1")
	in.runsOn(t, selector, "n1", "n1")

	// n1 loses the feature, n2 gets it. The scheduler does not move running pods.
	in.publishes(t, "n2", "AVX")
	in.labeled(t, "n2", true)
	in.publishes(t, "n1")
	in.labeled(t, "n1", false)
	in.runsOn(t, app, "n1", "n1")

	in.deschedule(t, descheduler)
	left := 0
	for _, p := range in.pods(t, app) {
		if before[p.UID] {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d pods are left on the node, want 1: the PodDisruptionBudget lets one go", left)
	}
	in.runsOn(t, app, "n1", "n2")
	in.deschedule(t, descheduler)
	in.runsOn(t, app, "n2", "n2")
	in.runsOn(t, selector, "n1", "n1")
}

// avxRule labels nodes that have AVX.
func avxRule() *nfdv1alpha1.NodeFeatureRule {
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "avx"}}
	rule.Spec.Rules = []nfdv1alpha1.Rule{{
		Name: "avx", Labels: map[string]string{avxLabel: "true"},
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"AVX": {Op: nfdv1alpha1.MatchExists}},
		}},
	}}
	return rule
}

// app creates two pods that require the label, and a PodDisruptionBudget that keeps one of them.
func (in *installation) app(t *testing.T, name string, requires func(*corev1.PodSpec)) *appsv1.ReplicaSet {
	t.Helper()
	pod := newPod("default", name, "")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) // no kubelet confirms the end of a pod
	requires(&pod.Spec)
	app := workload("ReplicaSet", pod).(*appsv1.ReplicaSet)
	app.Spec.Replicas = ptr.To[int32](2)
	in.create(t, app)
	one := intstr.FromInt32(1)
	in.create(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: app.Spec.Selector},
	})
	return app
}

func (in *installation) pods(t *testing.T, app *appsv1.ReplicaSet) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := in.api.List(t.Context(), &list, client.InNamespace(app.Namespace), client.MatchingLabels(app.Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// runsOn waits until the pods of an app run on these nodes and one of them may be evicted, and returns their UIDs. It reports bound pods
// as ready, as a kubelet would.
func (in *installation) runsOn(t *testing.T, app *appsv1.ReplicaSet, nodes ...string) map[types.UID]bool {
	t.Helper()
	want := map[string]int{}
	for _, node := range nodes {
		want[node]++
	}
	var uids map[types.UID]bool
	testkit.Eventually(t, fmt.Sprintf("the pods run on %v", nodes), func(ctx context.Context) error {
		uids = map[types.UID]bool{}
		on := map[string]int{}
		for _, p := range in.pods(t, app) {
			uids[p.UID] = true
			on[p.Spec.NodeName]++
			if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodRunning {
				continue
			}
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			if err := in.api.Status().Update(ctx, &p); err != nil {
				return err
			}
		}
		if fmt.Sprint(on) != fmt.Sprint(want) {
			return fmt.Errorf("they run on %v", on)
		}
		var budget policyv1.PodDisruptionBudget
		if err := in.api.Get(ctx, client.ObjectKeyFromObject(app), &budget); err != nil {
			return err
		}
		if budget.Status.DisruptionsAllowed != 1 || budget.Status.CurrentHealthy != 2 {
			return fmt.Errorf("the PodDisruptionBudget allows %d disruptions of %d pods", budget.Status.DisruptionsAllowed, budget.Status.CurrentHealthy)
		}
		return nil
	})
	return uids
}

// publishes replaces the flags that the worker of a node publishes.
func (in *installation) publishes(t *testing.T, node string, flags ...string) {
	t.Helper()
	f := nodeFeature(node, flags...)
	testkit.Eventually(t, "features of "+node, func(ctx context.Context) error {
		var have nfdv1alpha1.NodeFeature
		if err := in.api.Get(ctx, client.ObjectKeyFromObject(f), &have); err != nil {
			return err
		}
		have.Spec = f.Spec
		return in.api.Update(ctx, &have)
	})
}

// labeled waits until a node has the label of avxRule, or does not have it.
func (in *installation) labeled(t *testing.T, name string, want bool) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("node %s has the label: %t", name, want), func(ctx context.Context) error {
		var node corev1.Node
		if err := in.api.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		if _, has := node.Labels[avxLabel]; has != want {
			return fmt.Errorf("labels are %v", node.Labels)
		}
		return nil
	})
}

// deschedule runs the descheduler once.
func (in *installation) deschedule(t *testing.T, descheduler string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(deschedulerPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), descheduler, "--kubeconfig="+in.Kubeconfig, "--policy-config-file="+policy, //nolint:gosec // the test's own
		"--descheduling-interval=0", "--disable-metrics", "--bind-address=127.0.0.1", "--secure-port="+testkit.Port(testkit.FreeAddress(t)),
		"--cert-dir="+dir, "-v=1").CombinedOutput()
	if err != nil {
		t.Fatalf("descheduler: %v\n%s", err, out)
	}
	t.Logf("descheduler:\n%s", out)
}
