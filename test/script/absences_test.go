//go:build linux

package script_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// wholeTable makes TestAbsences run all rows. Without it, only those marked as short.
const wholeTable = "ASSAY_WHOLE_TABLE"

// commands are the commands that read a cluster. Each of them is run in each state.
var commands = []string{
	"doctor", "nodes", "explain n1", "explain n1 example.com/everywhere", "explain n1 example.com/nothing", "why pod selects -n default",
	"why pod plain -n default", "baseline report", "rules", "diff FILE", "topology", "export --for cluster-autoscaler", "lint --from-cluster FILE",
}

// uiPages are the pages of assay ui that read a cluster.
var uiPages = []string{
	"", "fleet", "search?q=everywhere", "node?name=n1", "compare?a=n1&b=n2", "rules", "rule?name=everywhere", "objects", "pods", "pod?namespace=default&name=selects",
}

// crashed is what a program prints that has a defect.
var crashed = regexp.MustCompile(`panic: |goroutine \d+ \[|runtime error|%!\w?\(|<nil>|invalid memory address`)

// TestAbsences takes something away from an installation, or brings a Node into a state that only the controller brings it into, and runs all
// commands and the pages of assay ui: none crashes, each exits with 0, 1 or, if the cluster cannot be read, 2, and says what is missing if it
// needs it. The names of the rows are what is missing.
func TestAbsences(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	assay := testkit.Program(t, "assay")
	file := filepath.Join(t.TempDir(), "rule.yaml")
	if err := os.WriteFile(file, []byte("{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: new}, spec: {rules: [{name: new, labels: {example.com/new: x}}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type row struct {
		name    string
		short   bool
		change  func(*testing.T, *doctored)
		names   string   // what each command in says has
		says    []string // beginnings of commands
		readers []rbacv1.PolicyRule
		// startsNoUI is true if assay ui has nothing to show, and ends with an error.
		startsNoUI bool
	}
	without := func(definition string, says ...string) row {
		resource, _, _ := strings.Cut(definition, ".")
		noUI := resource == "nodefeatures" || resource == "nodefeaturerules"
		return row{name: definition, names: resource, says: says, startsNoUI: noUI, change: func(t *testing.T, d *doctored) {
			d.deleteDefinition(t, definition)
		}}
	}
	rows := []row{
		{name: "nothing", short: true, change: func(*testing.T, *doctored) {}},
		without("nodefeatures.nfd.k8s-sigs.io", "doctor", "nodes", "explain", "why", "diff"),
		without("nodefeaturerules.nfd.k8s-sigs.io", "doctor", "explain", "why", "diff", "rules"),
		without("nodefeaturegroups.nfd.k8s-sigs.io", "doctor"),
		without("nodefeatureruletemplates.assay.dev", "doctor"),
		without("nodefeaturerequests.assay.dev", "doctor"),
		without("nodefeatureschedulingpolicies.assay.dev", "doctor"),
		without("nodefeaturesets.assay.dev", "doctor"),
		without("nodeshapes.assay.dev", "doctor"),
		without("nodebaselines.assay.dev", "doctor", "baseline report"),
		{name: "the Lease", names: "nfd-master.nfd.kubernetes.io", says: []string{"doctor"}, change: func(t *testing.T, d *doctored) { d.delete(t, d.lease) }},
		{name: "the controller", short: true, names: "controller", says: []string{"doctor"}, change: func(t *testing.T, d *doctored) { d.delete(t, d.controller) }},
		{name: "the workers", names: "worker", says: []string{"doctor"}, change: func(t *testing.T, d *doctored) { d.delete(t, d.workers) }},
		{name: "a Node's worker", change: func(t *testing.T, d *doctored) { d.deletePod(t, "assay-worker-n1") }, names: "n1", says: []string{"doctor"}},
		{name: "a Node's features", change: func(t *testing.T, d *doctored) {
			d.delete(t, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "n1"}})
		}, names: "n1", says: []string{"doctor"}},
		{name: "a Node", change: func(t *testing.T, d *doctored) { d.delete(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}) }, names: "n1", says: []string{"explain"}},
		{
			name: "all rights but to get Nodes", short: true, names: "forbidden", says: commands,
			readers: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}},
		},
		{
			name: "the right to read rules", names: "nodefeaturerules", says: []string{"explain", "why", "rules", "diff"},
			readers: []rbacv1.PolicyRule{
				{APIGroups: []string{"", "apps", "coordination.k8s.io", "assay.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{"nfd.k8s-sigs.io"}, Resources: []string{"nodefeatures"}, Verbs: []string{"get", "list", "watch"}},
			},
		},
		{name: "a held label", short: true, change: func(t *testing.T, d *doctored) {
			d.published(t, hold.Flapping, "it changed 3 times within 1m0s, and stays for as long after the last change", time.Hour)
		}, names: "changed 3 times|Flapping", says: []string{"doctor", "explain n1 example.com/everywhere"}},
		{name: "a contested label", change: func(t *testing.T, d *doctored) {
			d.published(t, hold.Contested, "another client has changed it back 3 times within 1h0m0s", time.Hour)
		}, names: "another client", says: []string{"doctor", "explain n1 example.com/everywhere"}},
		{name: "a held removal", change: func(t *testing.T, d *doctored) {
			d.published(t, hold.Removal, "removalBudget: 3 of 3 nodes", time.Hour)
		}, names: "removalBudget", says: []string{"doctor", "explain n1 example.com/everywhere"}},
		{name: "an unread source", change: func(t *testing.T, d *doctored) {
			d.condition(t, "n1", assayv1alpha1.ReasonSourcesUnread, "These sources of the worker have not been read since the node booted: pci.")
		}, names: "SourcesUnread|not been read", says: []string{"doctor"}},
		{name: "a driver's devices", change: func(t *testing.T, d *doctored) {
			d.condition(t, "n1", assayv1alpha1.ReasonWaitingForDrivers, "DRA drivers that have published devices: gpu.example.com.")
		}, names: "gpu.example.com", says: []string{"doctor"}},
		{name: "a frozen node", change: func(t *testing.T, d *doctored) {
			d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionRejecting, Status: metav1.ConditionTrue, Reason: "NodesFailed", Message: "kept unchanged: 1 node"})
		}, names: "kept unchanged", says: []string{"doctor"}},
	}
	for _, row := range rows {
		if !row.short && os.Getenv(wholeTable) == "" {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			d := &doctored{c: c, api: testkit.Client(t, c.User), assay: assay, namespace: "assay-system", release: "assay"}
			d.install(t)
			d.unlabeled(t)
			b := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
			b.Spec.Uniform = []assayv1alpha1.BaselineValue{{Name: "kernel", Value: `{@"kernel.version.full"}`}}
			d.create(t, b)
			b.Status.ObservedGeneration = b.Generation
			b.Status.Conditions = []metav1.Condition{{
				Type: assayv1alpha1.ConditionConforming, Status: metav1.ConditionTrue, Reason: assayv1alpha1.ReasonAllConform, LastTransitionTime: metav1.Now(),
			}}
			d.updateStatus(t, b)
			for name, label := range map[string]string{"selects": "example.com/everywhere", "plain": "kubernetes.io/hostname"} {
				d.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: corev1.PodSpec{
					NodeSelector: map[string]string{label: "true"}, Containers: d.template("x").Spec.Containers,
				}})
			}
			kubeconfig := c.Kubeconfig
			if row.change != nil {
				row.change(t, d)
			}
			if row.readers != nil {
				kubeconfig = reader(t, c, d.api, "reader", row.readers...)
			}
			for _, command := range commands {
				d.runs(t, kubeconfig, strings.ReplaceAll(command, "FILE", file), func() (want string) {
					for _, start := range row.says {
						if strings.HasPrefix(command, start) {
							want = row.names
						}
					}
					return want
				}())
			}
			if row.startsNoUI {
				d.runs(t, kubeconfig, "ui", row.names)
			} else {
				d.shows(t, kubeconfig)
			}
		})
	}
}

// runs runs a command. Its output must match an expression.
func (d *doctored) runs(t *testing.T, kubeconfig, command, want string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), d.assay, append(strings.Fields(command), "--kubeconfig", kubeconfig)...)
	out, _ := run.CombinedOutput()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	t.Logf("%-36s %d  %s", command, run.ProcessState.ExitCode(), first)
	if code := run.ProcessState.ExitCode(); code < 0 || code > 2 || crashed.Match(out) {
		t.Errorf("assay %s ended with %d:\n%s", command, code, out)
	}
	text := string(out)
	if command == "doctor" {
		text = first // the cause, before its consequences
	}
	if want != "" && !regexp.MustCompile(want).MatchString(text) {
		t.Errorf("assay %s does not name %s:\n%s", command, want, out)
	}
}

// shows gets the pages of assay ui.
func (d *doctored) shows(t *testing.T, kubeconfig string) {
	t.Helper()
	p := startUI(t, d.assay, kubeconfig)
	for _, page := range uiPages {
		response, err := http.Get(p.base + page)
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		_ = response.Body.Close()
		text, _ := p.get(t.Context(), page)
		t.Logf("ui %-33s %d  %d bytes", page, response.StatusCode, len(text))
		if response.StatusCode == http.StatusInternalServerError || crashed.MatchString(text) {
			t.Errorf("the page %q: %s:\n%s", page, response.Status, text)
		}
	}
}

// deleteDefinition deletes a CustomResourceDefinition, and creates it again after the test.
func (d *doctored) deleteDefinition(t *testing.T, name string) {
	t.Helper()
	if out, err := d.c.Kubectl(t.Context(), "delete", "customresourcedefinition", name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := d.c.ApplyCRDs(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
