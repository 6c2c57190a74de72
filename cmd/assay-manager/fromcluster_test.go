//go:build linux

package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/testkit"
)

// TestLintFromClusterGivesTheWebhooksAnswer starts a webhook with flags and a configuration that differ from the defaults, lints
// invalid objects and creates them: lint --from-cluster must report the same as the API server.
func TestLintFromClusterGivesTheWebhooksAnswer(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	if err := k.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	const content = "enableTaints: true\nextraLabelNs: [example.com]\nrestrictions: {disableAnnotations: true}\nprotectedKeys: [feature.node.kubernetes.io/mine]\n"
	file := filepath.Join(t.TempDir(), "nfd-master.conf")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--strict-admission", "--node-warnings=false", "--default-scope=a", "--scheduling",
		`--worker-tolerations=[{"key": "maintenance", "operator": "Exists"}]`}
	withScheduling(t, k)
	startWebhook(t, c, append([]string{"--config=" + file}, args...)...)

	namespace := testkit.Namespace(t, k)
	testkit.Create(t, k, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "assay"}, Data: map[string]string{"nfd-master.conf": content},
	})
	labels := map[string]string{"app.kubernetes.io/component": "webhook"}
	partOf := maps.Clone(labels)
	partOf["app.kubernetes.io/part-of"] = "assay"
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{Name: "webhook", Image: "none", Args: append([]string{"webhook", "--port=8080"}, args...)}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "assay"}},
		}}},
	}
	testkit.Create(t, k, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "assay-webhook", Labels: partOf},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
	offline, linted := lintFiles(t, wrongDirs), lintFiles(t, wrongDirs, "--from-cluster", "--kubeconfig="+c.Kubeconfig)
	api, changed := newCreator(t, c), 0
	for file, report := range linted {
		answerSays(t, api.create(t, file, "fieldValidation=Strict&dryRun=All"), report)
		if len(report.errors()) != len(offline[file].errors()) || len(report.warnings()) != len(offline[file].warnings()) {
			changed++
		}
	}
	if changed < 10 {
		t.Errorf("the settings of the webhook change the findings about %d objects only", changed)
	}
}
