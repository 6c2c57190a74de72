//go:build linux

package scheduling

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
	"github.com/assay-project/assay/webhook"
)

// TestWorkloadsOfRequests creates every kind of workload with the label of a request on a control plane with the real scheduler and
// controllers: with the policy, where the API server has the kind, and with the webhook. node-2 alone has AMX.
func TestWorkloadsOfRequests(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{
		FakeNodes: true, Scheduler: true, ControllerManager: true, DisableAdmission: []string{"ServiceAccount"},
	})
	in := &installation{Cluster: c, api: testkit.Client(t, c.User), bin: programs(t)}
	in.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})
	for node, flags := range map[string][]string{"node-1": {"AVX512F"}, "node-2": {"AVX512F", "AMXBF16"}, "node-3": {"AVX512F"}} {
		in.create(t, bigNode(node))
		in.create(t, nodeFeature(node, flags...))
	}
	runManager(t, c, in.bin, stage.Controller)
	err := in.api.List(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyList{})
	if err != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	if served := err == nil; served {
		t.Run("Policy", func(t *testing.T) {
			in.requestPolicies(t)
			in.requestWorkloads(t, true)
		})
	} else if os.Getenv(cluster.EmulatedVersion) == "" {
		t.Error("the API server does not have MutatingAdmissionPolicies")
	}
	t.Run("Webhook", func(t *testing.T) {
		in.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "assay-webhook-cert"}})
		in.create(t, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.ConfigurationName}})
		for _, name := range []string{webhook.ConfigurationName, webhook.SelectorConfigurationName} {
			in.create(t, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		runManager(t, c, in.bin, stage.Webhook, "--request-selectors", "--node-warnings=false")
		in.requestWorkloads(t, false)
		if err := in.Terminate(t.Context(), "webhook"); err != nil {
			t.Fatal(err)
		}
		in.rejectsWithoutWebhook(t)
	})
}

// requestPolicies creates the shipped policies until the end of the test.
func (in *installation) requestPolicies(t *testing.T) {
	t.Helper()
	for _, document := range bytes.Split(charts.SchedulingPolicy(charts.FeatureRequest), []byte("\n---\n")) {
		var object client.Object = &admissionregistrationv1.MutatingAdmissionPolicy{}
		if bytes.Contains(document, []byte("kind: MutatingAdmissionPolicyBinding")) {
			object = &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatal(err)
		}
		testkit.Create(t, in.api, object)
	}
}

// asking are the workloads of one namespace.
type asking struct {
	*installation
	namespace, label string
}

// requestWorkloads creates the workloads in a new namespace. alone: admission works while nothing of Assay runs.
func (in *installation) requestWorkloads(t *testing.T, alone bool) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ml-"}}
	testkit.Create(t, in.api, ns)
	a := &asking{in, ns.Name, "features.assay.dev/" + ns.Name + ".amx"}
	for name, spec := range map[string]string{
		"amx":   "required: {matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMXBF16: {op: Exists}}}]}",
		"avx":   "required: {matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX512F: {op: Exists}}}]}",
		"soft":  "preferred: [{weight: 1, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMXBF16: {op: Exists}}}]}]",
		"never": "{materialize: Never, required: {matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMXBF16: {op: Exists}}}]}}",
		"reads": "required: {matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: Exists}}}]}",
	} {
		o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}
		if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
			t.Fatal(err)
		}
		in.create(t, o)
	}
	testkit.Eventually(t, "admission and the labels work", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := in.api.List(ctx, &nodes, client.MatchingLabels{a.label: "true"}); err != nil {
			return err
		}
		if len(nodes.Items) != 1 || nodes.Items[0].Name != "node-2" {
			return fmt.Errorf("%d nodes have the label", len(nodes.Items))
		}
		for name, want := range map[string]int{"amx": 1, "never": 0} { // both policies
			p := a.pod("dry", name)
			if err := in.api.Create(ctx, p, client.DryRunAll); err != nil {
				return err
			}
			if len(p.Spec.NodeSelector) != want {
				return fmt.Errorf("a pod of %s gets %v", name, p.Spec.NodeSelector)
			}
		}
		return nil
	})
	t.Run("Pods", a.pods)
	t.Run("Controllers", a.controllers)
	t.Run("DaemonSet", a.daemonSet)
	if alone {
		t.Run("NothingOfAssayRuns", a.alone)
	}
}

// pod returns a pod that names a request; none if the name is empty.
func (a *asking) pod(name, request string) *corev1.Pod {
	p := newPod(a.namespace, name, "")
	p.Labels = map[string]string{"app": name}
	if request != "" {
		p.Labels[assayv1alpha1.FeatureRequestLabel] = request
	}
	return p
}

func (a *asking) pods(t *testing.T) {
	generated := a.pod("", "amx")
	generated.GenerateName = "generated-"
	selecting := a.pod("selecting", "amx")
	selecting.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-2"}
	terms := a.pod("terms", "amx")
	terms.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}},
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"}}}},
		}},
	}}
	for _, p := range []*corev1.Pod{a.pod("plain", "amx"), generated, selecting, terms} {
		affinity := p.Spec.Affinity.DeepCopy()
		a.create(t, p)
		if p.Spec.NodeSelector[a.label] != "true" {
			t.Errorf("%s has the selector %v", p.Name, p.Spec.NodeSelector)
		}
		if p.Spec.Affinity.String() != affinity.String() {
			t.Errorf("the affinity of %s is %v", p.Name, p.Spec.Affinity)
		}
		a.placed(t, p, "node-2")
	}
	if selecting.Spec.NodeSelector[corev1.LabelHostname] != "node-2" {
		t.Errorf("the selector lost a label: %v", selecting.Spec.NodeSelector)
	}
	// Pods of requests for which nodes get no label do not wait, and other pods are left alone.
	for _, request := range []string{"soft", "never", "reads", ""} {
		p := a.pod("free-"+request+"x", request)
		a.create(t, p)
		if len(p.Spec.NodeSelector) > 0 {
			t.Errorf("a pod of the request %q has the selector %v", request, p.Spec.NodeSelector)
		}
		a.anywhere(t, p)
	}
	// Pods of a request that does not exist, and of one whose name with the namespace has 64 characters, wait.
	tooLong := strings.Repeat("x", 63-len(a.namespace))
	a.create(t, &assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: tooLong},
		Spec:       assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{Required: requirement("AMXBF16")}},
	})
	for request, label := range map[string]string{
		"later": "features.assay.dev/" + a.namespace + ".later", tooLong: "features.assay.dev/invalid-feature-request",
	} {
		p := a.pod("waits-"+request[:5], request)
		a.create(t, p)
		if p.Spec.NodeSelector[label] != "true" {
			t.Errorf("a pod of the request %q has the selector %v", request, p.Spec.NodeSelector)
		}
		a.unschedulable(t, p)
	}
	if err := a.api.Create(t.Context(), a.pod("longer", strings.Repeat("x", 64))); !apierrors.IsInvalid(err) {
		t.Errorf("a request whose name has 64 characters cannot be named: got %v", err)
	}
	// The pod starts once there is the request.
	a.create(t, &assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "later"},
		Spec:       assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{Required: requirement("AMXBF16")}},
	})
	a.placed(t, a.pod("waits-later", ""), "node-2")
}

// anywhere waits until a pod is placed on some node.
func (a *asking) anywhere(t *testing.T, p *corev1.Pod) {
	t.Helper()
	testkit.Eventually(t, "pod "+p.Name+" is placed", func(ctx context.Context) error {
		if err := a.api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Spec.NodeName == "" {
			return fmt.Errorf("it waits: %s", message(p))
		}
		return nil
	})
}

// unschedulable waits until the scheduler has found no node for a pod.
func (a *asking) unschedulable(t *testing.T, p *corev1.Pod) {
	t.Helper()
	testkit.Eventually(t, "pod "+p.Name+" fits on no node", func(ctx context.Context) error {
		if err := a.api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Spec.NodeName != "" || !strings.Contains(message(p), "didn't match Pod's node affinity/selector") {
			return fmt.Errorf("it is on %q: %s", p.Spec.NodeName, message(p))
		}
		return nil
	})
}

// controllers creates workloads whose controllers create pods.
func (a *asking) controllers(t *testing.T) {
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "Job", "CronJob"} {
		t.Run(kind, func(t *testing.T) {
			name := strings.ToLower(kind)
			o := workload(kind, a.pod(name, ""))
			switch o := o.(type) {
			case *appsv1.Deployment:
				o.Spec.Template.Labels[assayv1alpha1.FeatureRequestLabel] = "amx"
			case *appsv1.StatefulSet:
				o.Spec.Template.Labels[assayv1alpha1.FeatureRequestLabel] = "amx"
			case *appsv1.ReplicaSet:
				o.Spec.Template.Labels[assayv1alpha1.FeatureRequestLabel] = "amx"
			case *batchv1.Job:
				o.Spec.Template.Labels[assayv1alpha1.FeatureRequestLabel] = "amx"
			case *batchv1.CronJob:
				o.Spec.JobTemplate.Spec.Template.Labels[assayv1alpha1.FeatureRequestLabel] = "amx"
			}
			a.create(t, o)
			if job, ok := o.(*batchv1.Job); ok && job.Spec.Template.Spec.NodeSelector[a.label] != "true" {
				t.Errorf("the template of the Job has the selector %v", job.Spec.Template.Spec.NodeSelector)
			}
			if cron, ok := o.(*batchv1.CronJob); ok {
				// A start that was missed: the controller creates the Job now, and the test does not wait until the next minute.
				before := cron.DeepCopy()
				cron.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
				if err := a.api.Status().Patch(t.Context(), cron, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Eventually(t, "its pods are on node-2", func(ctx context.Context) error {
				var list corev1.PodList
				if err := a.api.List(ctx, &list, client.InNamespace(a.namespace), client.MatchingLabels{"app": name}); err != nil {
					return err
				}
				for i := range list.Items {
					if p := &list.Items[i]; p.Spec.NodeSelector[a.label] != "true" || p.Spec.NodeName != "node-2" {
						return fmt.Errorf("%s with the selector %v is on %q: %s", p.Name, p.Spec.NodeSelector, p.Spec.NodeName, message(p))
					}
				}
				if len(list.Items) == 0 {
					return fmt.Errorf("there are none")
				}
				return nil
			})
		})
	}
}

// daemonSet changes the label of the template, and applies the same manifest twice in both ways. The controller wants a pod on each node that
// has the label of the request, and on no other.
func (a *asking) daemonSet(t *testing.T) {
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		a.marked(t, node)
	}
	for _, apply := range [][]string{{"apply"}, {"apply", "--server-side"}} {
		name := strings.Trim(strings.Join(apply, ""), "-")
		t.Run(name, func(t *testing.T) {
			generation := func() int64 {
				var set appsv1.DaemonSet
				if err := a.api.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: "agent-" + name}, &set); err != nil {
					t.Fatal(err)
				}
				return set.Generation
			}
			for _, step := range []struct {
				request string
				desired int32
			}{{"amx", 1}, {"avx", 3}, {"amx", 1}, {"", 3}, {"never", 3}, {"amx", 1}} {
				a.apply(t, apply, "agent-"+name, step.request)
				want := map[string]string{"example.com/any": "true"}
				if step.request != "" && step.request != "never" {
					want["features.assay.dev/"+a.namespace+"."+step.request] = "true"
				}
				testkit.Eventually(t, fmt.Sprintf("%d pods of %q", step.desired, step.request), func(ctx context.Context) error {
					var set appsv1.DaemonSet
					if err := a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "agent-" + name}, &set); err != nil {
						return err
					}
					if got := set.Spec.Template.Spec.NodeSelector; !maps.Equal(got, want) {
						return fmt.Errorf("the selector is %v, want %v", got, want)
					}
					if s := set.Status; s.ObservedGeneration != set.Generation || s.DesiredNumberScheduled != step.desired {
						return fmt.Errorf("DESIRED is %d of generation %d, want %d of %d", s.DesiredNumberScheduled, s.ObservedGeneration, step.desired, set.Generation)
					}
					return nil
				})
				before := generation()
				a.apply(t, apply, "agent-"+name, step.request)
				if now := generation(); now != before {
					t.Errorf("applying the same manifest of %q changes the generation from %d to %d", step.request, before, now)
				}
			}
		})
	}
	// A node that gets the feature gets a pod.
	a.publishes(t, "node-3", "AVX512F", "AMXBF16")
	testkit.Eventually(t, "the DaemonSet wants a pod on two nodes", func(ctx context.Context) error {
		var set appsv1.DaemonSet
		if err := a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "agent-apply"}, &set); err != nil {
			return err
		}
		if set.Status.DesiredNumberScheduled != 2 {
			return fmt.Errorf("DESIRED is %d", set.Status.DesiredNumberScheduled)
		}
		return nil
	})
	a.publishes(t, "node-3", "AVX512F")
	testkit.Eventually(t, "node-3 loses the label", func(ctx context.Context) error {
		var node corev1.Node
		if err := a.api.Get(ctx, client.ObjectKey{Name: "node-3"}, &node); err != nil {
			return err
		}
		if _, has := node.Labels[a.label]; has {
			return fmt.Errorf("it has it")
		}
		return nil
	})
}

// apply applies the manifest of a DaemonSet with kubectl.
func (a *asking) apply(t *testing.T, verb []string, name, request string) {
	t.Helper()
	labels := map[string]string{"app": name}
	if request != "" {
		labels[assayv1alpha1.FeatureRequestLabel] = request
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"name": name, "namespace": a.namespace},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]string{"app": name}}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"nodeSelector": map[string]string{"example.com/any": "true"}, "containers": []any{map[string]any{"name": "c", "image": "none"}},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "set.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), a.Program(kube.Kubectl), append(slices.Clone(verb), "-f", file, "--cache-dir="+t.TempDir())...) //nolint:gosec // the test's own
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+a.Kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v\n%s", verb, err, out)
	}
}

// marked gives a node the label by which the DaemonSets of the test select, too.
func (a *asking) marked(t *testing.T, name string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"example.com/any":"true"}}}`)
	if err := a.api.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

// alone: a pod is admitted and placed while no program of Assay runs.
func (a *asking) alone(t *testing.T) {
	if err := a.Terminate(t.Context(), "controller"); err != nil {
		t.Fatal(err)
	}
	p := a.pod("alone", "amx")
	a.create(t, p)
	a.placed(t, p, "node-2")
	if err := a.Restart(t.Context(), "controller"); err != nil {
		t.Fatal(err)
	}
}

// rejectsWithoutWebhook: while the webhook is unavailable, the API server rejects objects that name a request, and no others.
func (in *installation) rejectsWithoutWebhook(t *testing.T) {
	named := newPod("default", "named", "")
	named.Labels = map[string]string{assayv1alpha1.FeatureRequestLabel: "amx"}
	other := newPod("default", "other", "")
	other.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	if err := in.api.Create(t.Context(), named); err == nil || !strings.Contains(err.Error(), "pods.requests.assay.dev") {
		t.Errorf("a pod that names a request: got %v", err)
	}
	if err := in.api.Create(t.Context(), other); err != nil {
		t.Errorf("another pod: %v", err)
	}
}
