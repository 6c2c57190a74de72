//go:build linux

package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

const (
	chart     = "../../charts/assay"
	release   = "assay"
	namespace = "assay-system"
	// operatorJob is the Job by which the operator of a parent chart writes definitions.
	operatorJob = "operator-upgrade-crds"
	// commandTimeout is the maximum duration of a command; most take seconds.
	commandTimeout = 2 * time.Minute
)

// world is a control plane without kubelets, on which this test runs the Jobs of hooks.
type world struct {
	*testing.T
	*cluster.Cluster
	api     client.WithWatch
	version string // of Helm
	helm    string // the program
	manager string // the program
	home    string // of Helm

}

// programs compiles both versions of Helm, which hack/helm3 and hack/chart pin.
var programs = sync.OnceValues(func() (map[string]string, error) {
	out := map[string]string{}
	for name, args := range map[string][]string{
		"Helm 3": {"-C", "../../hack/helm3", "tool", "-n", "helm"},
		"Helm 4": {"tool", "-modfile=../../hack/chart/go.mod", "-n", "helm"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("go", args...) //nolint:gosec // arguments of this test, once for all tests
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
		}
		out[name] = strings.TrimSpace(stdout.String())
	}
	return out, nil
})

func newWorld(t *testing.T, version string) *world {
	t.Helper()
	c := testkit.PrivateCluster(t, cluster.Options{Core: true})
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, Cluster: c, api: testkit.Client(t, c.User), version: version, helm: built[version], manager: testkit.Program(t, "assay-manager"), home: t.TempDir()}
	testkit.Create(t, w.api, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.clean(t) // the control plane has the definitions
	go w.kubelet()
	return w
}

// kubelet runs the Jobs: that of the definitions with the permissions of its ServiceAccount, and that of the operator, which applies the
// definitions of Node Feature Discovery. The others have nothing to do in a cluster without nodes.
func (w *world) kubelet() {
	ctx := w.Context()
	for ctx.Err() == nil {
		watch, err := w.api.Watch(ctx, &batchv1.JobList{})
		if err != nil {
			continue
		}
		for e := range watch.ResultChan() {
			job, ok := e.Object.(*batchv1.Job)
			if !ok || job.DeletionTimestamp != nil || len(job.Status.Conditions) > 0 {
				continue
			}
			if err := errors.Join(w.runJob(ctx, job), w.complete(ctx, job)); err != nil && ctx.Err() == nil {
				w.Errorf("Job %s: %v", job.Name, err)
			}
		}
	}
}

func (w *world) runJob(ctx context.Context, job *batchv1.Job) error {
	spec := job.Spec.Template.Spec
	switch {
	case job.Name == operatorJob:
		return w.foreign(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=operator")
	case slices.Equal(spec.Containers[0].Args, []string{"apply-definitions"}):
		user, err := w.NewUser("system:serviceaccount:" + job.Namespace + ":" + spec.ServiceAccountName)
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, w.manager, "apply-definitions", "--kubeconfig="+user.Kubeconfig).CombinedOutput() //nolint:gosec // compiled here
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

func (w *world) complete(ctx context.Context, job *batchv1.Job) error {
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now})
	}
	return client.IgnoreNotFound(w.api.Status().Update(ctx, job))
}

// foreign writes definitions as in Node Feature Discovery, which lack fields of Assay's, with a command of kubectl.
func (w *world) foreign(ctx context.Context, command ...string) error {
	_, err := w.KubectlInput(ctx, foreignDefinitions(), append(command, "-f", "-")...)
	return err
}

// foreignDefinitions returns the definitions of NodeFeature and NodeFeatureRule without fields of Assay's.
func foreignDefinitions() string {
	var documents []string
	for _, file := range []string{"nfd.k8s-sigs.io_nodefeatures.yaml", "nfd.k8s-sigs.io_nodefeaturerules.yaml"} {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(charts.CRDs()[file], &crd.Object); err != nil {
			panic(err) // of this project
		}
		crd.SetAnnotations(map[string]string{"example.com/from": "another project"})
		crd.SetLabels(nil)
		version := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		for _, field := range []string{"subresources", "selectableFields", "additionalPrinterColumns"} {
			delete(version, field)
		}
		version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": map[string]any{
				"rules": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{
					"name": map[string]any{"type": "string"}, "labels": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
				}}},
			}},
		}}}
		text, err := yaml.Marshal(crd.Object)
		if err != nil {
			panic(err)
		}
		documents = append(documents, string(text))
	}
	return strings.Join(documents, "---\n")
}

// run runs Helm, and returns its output. The error has what it printed.
func (w *world) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.helm, append(args, "--namespace="+namespace)...) //nolint:gosec // compiled here
	cmd.Env = append(os.Environ(), "HOME="+w.home, "HELM_CACHE_HOME="+w.home, "HELM_CONFIG_HOME="+w.home, "HELM_DATA_HOME="+w.home, "KUBECONFIG="+w.Kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin, err := time.Now(), cmd.Run()
	w.Logf("%4.1f s  helm %s: %v", time.Since(begin).Seconds(), strings.Join(args, " "), err)
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// ok runs Helm.
func (w *world) ok(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.run(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl runs kubectl as an administrator.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// whole checks that all definitions have the fields of this version, and that the release is what Helm says it is.
func (w *world) whole(t *testing.T) {
	t.Helper()
	w.defined(t)
	manifest := w.ok(t, "get", "manifest", release)
	out, err := w.KubectlInput(t.Context(), manifest, "diff", "--namespace="+namespace, "-f", "-")
	if err != nil || out != "" {
		t.Errorf("the cluster differs from helm get manifest: %v\n%s", err, out)
	}
}

func (w *world) defined(t *testing.T) {
	t.Helper()
	for file, data := range charts.CRDs() {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			t.Fatal(err)
		}
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if status, err := definition.Of(crd); err != nil || status.State != definition.Whole {
			t.Errorf("%s is %s and lacks %q: %v", file, status.State, status.Missing, err)
		}
	}
}

// rule is a rule with a field that only Assay's definition has.
const rule = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: kept}
spec:
  rules:
  - name: x
    labels: {example.com/kept: "true"}
    conditions: [{op: is-true, args: {value: "true"}}]
`

// hasRule creates the rule.
func (w *world) hasRule(t *testing.T) {
	t.Helper()
	if _, err := w.KubectlInput(t.Context(), rule, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// keepsRule checks that the rule exists with all its fields.
func (w *world) keepsRule(t *testing.T) {
	t.Helper()
	if got := w.kubectl(t, "get", "nodefeaturerule", "kept", "-o", "jsonpath={.spec.rules[0].conditions[0].op}"); got != "is-true" {
		t.Errorf("the rule has the condition %q, want is-true", got)
	}
}

// clean deletes the releases, and the definitions with all rules.
func (w *world) clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{release, "parent", "nfd"} {
		_, _ = w.run("uninstall", name, "--ignore-not-found")
	}
	if w.kubectl(t, "get", "crd", "nodefeaturerules.nfd.k8s-sigs.io", "--ignore-not-found", "-o", "name") != "" {
		w.kubectl(t, "delete", "nodefeaturerules", "--all")
	}
	// Without objects, the API server need not look for them: it does so for one definition after the other, in ten seconds each.
	w.kubectl(t, "delete", "crd", "--all", "--wait=false")
	for name := range strings.FieldsSeq(w.kubectl(t, "get", "crd", "-o", "name")) {
		if _, err := w.Kubectl(t.Context(), "patch", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`); err != nil && !strings.Contains(err.Error(), "NotFound") {
			t.Fatal(err)
		}
	}
	w.kubectl(t, "wait", "crd", "--all", "--for=delete")
	w.kubectl(t, "delete", "job,secret,validatingwebhookconfiguration,mutatingwebhookconfiguration", "--all", "--namespace="+namespace, "--wait")
}
