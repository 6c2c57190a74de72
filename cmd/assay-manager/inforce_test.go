//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// inForce is a configuration in which the settings that outcomes and reviews depend on have other values than by default.
const inForce = `
enableTaints: true
extraLabelNs: [added.kubernetes.io]
denyLabelNs: ["*.denied.com"]
labelWhiteList: "^(ok|asked)"
defaultScope: here
defaultNodeScope: here
defaultTemplate: in-force-below
protectedKeys: [example.com/ok-protected]
startupTaint: example.com/ok-starting
maskedElements: ["*hidden*"]
featureSources: "/(in-force|trusted)$"
allowFail: false
restrictions:
  nodeFeatureNamespaceSelector: {matchLabels: {trusted: "yes"}}
  denyNodeFeatureLabels: true
  disableAnnotations: true
`

// inForceRules are rules of which each depends on a setting. The webhook and lint must agree on each of them, and a Node and explain on what
// they give.
var inForceRules = map[string]struct {
	rule string
	key  string // the key that it gives on a Node; empty: none
}{
	"extra":     {`{name: r, labels: {added.kubernetes.io/ok-extra: "1"}}`, "added.kubernetes.io/ok-extra"},
	"denied":    {`{name: r, labels: {a.denied.com/ok-denied: "1"}}`, ""},
	"listed":    {`{name: r, labels: {ok-listed: "1"}}`, "feature.node.kubernetes.io/ok-listed"},
	"unlisted":  {`{name: r, labels: {no-listed: "1"}}`, ""},
	"protected": {`{name: r, labels: {example.com/ok-protected: "1"}}`, ""},
	"starting":  {`{name: r, taints: [{key: example.com/ok-starting, value: "1", effect: NoSchedule}]}`, ""},
	"taint":     {`{name: r, taints: [{key: example.com/ok-taint, value: "1", effect: PreferNoSchedule}]}`, "example.com/ok-taint:PreferNoSchedule"},
	"annotated": {`{name: r, annotations: {example.com/ok-annotation: "1"}}`, ""},
	"trusted":   {`{name: r, labels: {ok-trusted: "1"}, matchFeatures: [{feature: of.trusted}]}`, "feature.node.kubernetes.io/ok-trusted"},
	"stranger":  {`{name: r, labels: {ok-stranger: "1"}, matchFeatures: [{feature: of.stranger}]}`, ""},
	"source":    {`{name: r, labels: {ok-source: "1"}, matchFeatures: [{feature: of.other}]}`, ""},
	"masked":    {`{name: r, labels: {"ok-{@of.worker.hidden}": "1"}}`, ""},
	"plain":     {`{name: r, labels: {"ok-{@of.worker.plain}": "1"}}`, "feature.node.kubernetes.io/ok-yes"},
}

// TestSettingsAreInForceInControllerWebhookLintAndExplain runs a controller and a webhook with a configuration in which much differs from
// the defaults, as an installation whose settings the command line can read.
func TestSettingsAreInForceInControllerWebhookLintAndExplain(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	file := filepath.Join(t.TempDir(), "nfd-master.conf")
	if err := os.WriteFile(file, []byte(inForce), 0o600); err != nil {
		t.Fatal(err)
	}
	webhook := []string{"--strict-admission", "--node-warnings=false"}
	deploy(t, k, namespace, inForce, webhook...)
	testkit.Node(t, k, "in-force")
	trusted, stranger := testkit.Namespace(t, k), testkit.Namespace(t, k)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: trusted}}
	if err := k.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"trusted": "yes"}}}`))); err != nil {
		t.Fatal(err)
	}
	publishOf(t, k, namespace, "in-force", "worker", "asked-worker")
	publishOf(t, k, trusted, "trusted", "trusted", "asked-trusted")
	publishOf(t, k, trusted, "other", "other", "asked-other")
	publishOf(t, k, stranger, "trusted", "stranger", "asked-stranger")

	dir := t.TempDir()
	testkit.Create(t, k, &assayv1alpha1.NodeFeatureRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "in-force-below"}, Spec: object(t, `rules: [{name: below, labels: {ok-below: "1"}}]`).Spec,
	})
	for name, tc := range inForceRules { // before there is a webhook that rejects some
		rule := object(t, "rules: ["+tc.rule+"]")
		rule.Name = "in-force-" + name
		testkit.Create(t, k, rule)
		text := "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: again-" + name + "}\nspec: {rules: [" + tc.rule + "]}\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startController(t, c, namespace, "--config="+file)
	want := map[string]bool{"feature.node.kubernetes.io/ok-below": true, "feature.node.kubernetes.io/asked-worker": true}
	for _, tc := range inForceRules {
		if tc.key != "" {
			want[tc.key] = true
		}
	}
	testkit.Eventually(t, "the Node has what the settings allow", func(ctx context.Context) error {
		var node corev1.Node
		if err := k.Get(ctx, client.ObjectKey{Name: "in-force"}, &node); err != nil {
			return err
		}
		return hasExactly(&node, want)
	})
	explained(t, c.Kubeconfig, want)

	startWebhook(t, c, append(webhook, "--config="+file)...)
	linted := lintFiles(t, []string{dir}, "--from-cluster", "--assay-namespace="+namespace, "--kubeconfig="+c.Kubeconfig)
	api, rejected := newCreator(t, c), 0
	for path, report := range linted {
		answerSays(t, api.create(t, path, "dryRun=All"), report)
		if len(report.errors()) > 0 {
			rejected++
		}
	}
	if rejected < 3 {
		t.Errorf("the webhook rejects %d rules, want those with a denied or protected key", rejected)
	}
}

// deploy creates Deployments of the controller and the webhook with these arguments, as the chart does, without running them.
func deploy(t *testing.T, k client.Client, namespace, content string, args ...string) {
	t.Helper()
	testkit.Create(t, k, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "assay"}, Data: map[string]string{"nfd-master.conf": content},
	})
	for _, component := range []string{"controller", "webhook"} {
		labels := map[string]string{"app.kubernetes.io/component": component, "app.kubernetes.io/part-of": "assay"}
		testkit.Create(t, k, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "assay-" + component, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: component, Image: "none", Args: append([]string{component, "--port=8080"}, args...)}},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "assay"}},
					}}},
				}},
			},
		})
	}
}

// publishOf creates a NodeFeature of the node in-force with a feature of.NAME and a requested label.
func publishOf(t *testing.T, k client.Client, namespace, name, feature, label string) {
	t.Helper()
	testkit.Create(t, k, &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "in-force"}},
		Spec: nfdv1alpha1.NodeFeatureSpec{
			Features: nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
				"of." + feature: {Elements: map[string]string{"plain": "yes", "hidden": "no"}},
			}},
			Labels: map[string]string{label: "1"},
		},
	})
}

// hasExactly compares the labels and taints of a Node whose names have the prefix of this test, and its annotations.
func hasExactly(node *corev1.Node, want map[string]bool) error {
	var wrong []string
	got := map[string]bool{}
	for key := range node.Labels {
		if strings.Contains(key, "ok-") || strings.Contains(key, "no-listed") || strings.Contains(key, "asked-") {
			got[key] = true
		}
	}
	for _, taint := range node.Spec.Taints {
		if strings.Contains(taint.Key, "ok-") {
			got[taint.Key+":"+string(taint.Effect)] = true
		}
	}
	if node.Annotations["example.com/ok-annotation"] != "" {
		got["example.com/ok-annotation"] = true
	}
	for key := range got {
		if !want[key] {
			wrong = append(wrong, key+" is on the Node")
		}
	}
	for key := range want {
		if !got[key] {
			wrong = append(wrong, key+" is not on the Node")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

// explained runs assay explain, which must show the keys of the Node.
func explained(t *testing.T, kubeconfig string, want map[string]bool) {
	t.Helper()
	assay := testkit.Program(t, "assay")
	run := func(args ...string) []byte {
		out, err := exec.CommandContext(t.Context(), assay, append([]string{"explain", "in-force", "--kubeconfig=" + kubeconfig}, args...)...).Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	var shown struct {
		Labels map[string]string
		Taints []corev1.Taint
	}
	if err := json.Unmarshal(run("-o", "json"), &shown); err != nil {
		t.Fatal(err)
	}
	if err := hasExactly(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: shown.Labels}, Spec: corev1.NodeSpec{Taints: shown.Taints}}, want); err != nil {
		t.Errorf("what explain shows instead of the Node: %v", err)
	}
	if text := string(run("example.com/ok-annotation")); !strings.Contains(text, "disableAnnotations") {
		t.Errorf("explain does not say why an annotation is not on the Node:\n%s", text)
	}
}
