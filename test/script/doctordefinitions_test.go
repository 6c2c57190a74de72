//go:build linux

package script_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestDoctorWithoutDefinitions: assay doctor ended with a panic if a definition was missing, which is so on every cluster without Assay. It
// takes away more and more definitions, and compares what is reported as a problem.
func TestDoctorWithoutDefinitions(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	d := &doctored{c: c, api: testkit.Client(t, c.User), assay: testkit.Program(t, "assay"), namespace: "assay-system", release: "assay"}
	remove := func(t *testing.T, names ...string) {
		t.Helper()
		if out, err := c.Kubectl(t.Context(), append([]string{"delete", "customresourcedefinition"}, names...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	problems := func(t *testing.T, want ...string) {
		t.Helper()
		run := exec.CommandContext(t.Context(), d.assay, "doctor", "--kubeconfig", c.Kubeconfig)
		out, err := run.CombinedOutput()
		if err == nil || run.ProcessState.ExitCode() != 1 {
			t.Fatalf("%v:\n%s", err, out)
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "ok ") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %d lines of problems, want %d:\n%s", len(got), len(want), out)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("line %d does not begin with %q:\n%s", i+1, want[i], out)
			}
		}
	}
	const absent = "BAD  Assay is not installed: no Deployment or DaemonSet in any namespace has the label app.kubernetes.io/part-of=assay"
	t.Run("The definitions alone", func(t *testing.T) {
		problems(t, "BAD  Assay's definitions are installed, and its programs are not: no Deployment or DaemonSet in any namespace has the label",
			"Install the chart: helm install assay charts/assay")
	})
	t.Run("Of another program", func(t *testing.T) { // also the status is dropped: rules were reported as not evaluated
		d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Compiled"})
		replaced := map[string]string{"nodefeaturerules.nfd.k8s-sigs.io": "status", "nodefeatures.nfd.k8s-sigs.io": "spec/properties/featureSets", "nodebaselines.assay.dev": "status"}
		for name, field := range replaced {
			patch := fmt.Sprintf(`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/%s"}]`, field)
			if out, err := c.Kubectl(t.Context(), "patch", "customresourcedefinition", name, "--type=json", "--patch", patch); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		const fix = "Upgrade the release, or apply the definitions of this version: helm show crds charts/assay | kubectl apply --server-side"
		found := []string{
			"BAD  CustomResourceDefinition nodebaselines.assay.dev is not Assay's, last written by kubectl-patch: the API server drops status", fix,
			"BAD  CustomResourceDefinition nodefeaturerules.nfd.k8s-sigs.io is not Assay's, last written by kubectl-patch: the API server drops status", fix,
			"BAD  CustomResourceDefinition nodefeatures.nfd.k8s-sigs.io is not Assay's, last written by kubectl-patch: the API server drops spec.featureSets", fix,
		}
		problems(t, append(found, "BAD  Assay's definitions are installed, and its programs are not", "Install the chart: helm install assay charts/assay")...)
		d.install(t)
		problems(t, found...)
		rule := filepath.Join(t.TempDir(), "rule.yaml")
		if err := os.WriteFile(rule, []byte("{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: r}, spec: {rules: [{name: x, labels: {a: b}}]}}"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, args := range map[string][]string{
			"nodebaselines.assay.dev": {"baseline", "report"}, "nodefeatures.nfd.k8s-sigs.io": {"lint", "--from-cluster", rule}, "nodefeaturerules.nfd.k8s-sigs.io": {"rules", "list"},
		} {
			out, err := exec.CommandContext(t.Context(), d.assay, append(args, "--kubeconfig", c.Kubeconfig)...).CombinedOutput()
			if want := "note: CustomResourceDefinition " + name + " is not Assay's"; err != nil || strings.Count(string(out), want) != 1 {
				t.Errorf("%v: %v, and not once %q:\n%s", args, err, want, out)
			}
		}
		if err := c.ApplyCRDs(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("One of an installation", func(t *testing.T) {
		d.install(t)
		remove(t, "nodebaselines.assay.dev")
		problems(t, "BAD  1 of 9 CustomResourceDefinitions do not exist: nodebaselines.assay.dev",
			"Upgrade the release, or apply the definitions of this version: helm show crds charts/assay | kubectl apply --server-side")
	})
	t.Run("Node Feature Discovery alone", func(t *testing.T) {
		remove(t, "nodefeaturerequests.assay.dev", "nodefeatureruletemplates.assay.dev", "nodefeatureschedulingpolicies.assay.dev",
			"nodefeaturesets.assay.dev", "nodeshapes.assay.dev")
		problems(t, absent, "The definitions of Node Feature Discovery exist: install the chart as docs/install.md describes",
			"WARN 6 of 9 CustomResourceDefinitions do not exist: nodebaselines.assay.dev, nodefeaturerequests.assay.dev", "The chart installs them")
	})
	t.Run("None of an installation", func(t *testing.T) {
		remove(t, "nodefeatures.nfd.k8s-sigs.io", "nodefeaturerules.nfd.k8s-sigs.io", "nodefeaturegroups.nfd.k8s-sigs.io")
		o := &appsv1.DaemonSet{ObjectMeta: d.meta("worker"), Spec: appsv1.DaemonSetSpec{Selector: d.selector("worker"), Template: d.template("worker")}}
		o.Namespace = metav1.NamespaceDefault
		testkit.Create(t, d.api, o)
		testkit.Rights(t, d.api, o.Namespace)
		testkit.Policies(t, d.api, o.Namespace)
		problems(t, "BAD  9 of 9 CustomResourceDefinitions do not exist: nodebaselines.assay.dev", "Upgrade the release, or apply the definitions",
			"BAD  the controller is not installed", "Upgrade the release with controller.enabled=true")
	})
	t.Run("An empty cluster", func(t *testing.T) {
		problems(t, absent, "Install the chart: helm install assay charts/assay", "WARN 9 of 9 CustomResourceDefinitions do not exist", "The chart installs them")
	})
}
