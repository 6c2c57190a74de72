//go:build linux

package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/hack/kustomize"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// TestFleet runs all phases with a small fleet in both modes, and checks the number of requests, which does not depend on the machine.
func TestFleet(t *testing.T) {
	for _, mode := range []struct {
		name   string
		shared bool
	}{{"Whole", false}, {"Shared", true}} {
		t.Run(mode.name, func(t *testing.T) {
			c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
			checkFleet(t, c, mode.shared)
		})
	}
}

// expected is the number of requests in a phase.
type expected struct {
	phase, request string
	count          int
}

func checkFleet(t *testing.T, c *cluster.Cluster, shared bool) {
	t.Helper()
	const nodes, changes, shapes = 15, 3, 5 // request counts per node do not depend on it
	r, err := measure(t.Context(), c, options{
		nodes: nodes, changes: changes, rules: 100, shapes: shapes, shared: shared, idle: 2 * time.Second, parallel: 8, manager: testkit.Program(t, "assay-manager"), progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())

	phases := map[string]*phaseResult{}
	created := 0
	const first = 3 // of each kind one
	for _, p := range r.Phases {
		phases[p.Name] = p
		created += p.Requests["POST nodeshapes"]
	}
	if created != shapes || r.Shapes != shapes || r.ShapeBytes > 16<<10 {
		t.Errorf("%d NodeShapes were created and there are %d, the largest of %d bytes; want %d", created, r.Shapes, r.ShapeBytes, shapes)
	}
	want := []expected{
		{phaseFirst, "POST nodefeatures", first},
		{phasePublish, "POST nodefeatures", nodes - first},
		{phasePublish, "GET nodefeatures", nodes - first},
		{phasePublish, "PATCH nodefeatures", 0},
		{phaseLabel, "PATCH nodes", 0},
		{phaseIdle, "GET nodefeatures", 0},
		{phaseIdle, "LIST nodefeatures", 0},
		{phaseIdle, "PATCH nodefeatures", 0},
		{phaseIdle, "PATCH nodes/status", 0},
		{phaseChange, "PATCH nodefeatures", changes},
		{phaseChange, "GET nodefeatures", 0},
		{phaseChange, "PATCH nodes/status", changes},
		{phaseLoss, "PATCH nodefeatures", changes},
		{phaseLoss, "GET nodefeatures", changes}, // the proofs of the controller
		{phaseLoss, "PATCH nodes/status", changes},
		{phaseRuleNone, "GET nodes", 0},
		{phaseRuleNone, "PATCH nodes/status", 0},
		{phaseRuleAll, "PATCH nodes/status", nodes},
		{phaseController, "PATCH nodes/status", 0},
		{phaseController, "PATCH nodes", 0},
		{phaseWorkers, "GET nodefeatures", nodes},
		{phaseWorkers, "PATCH nodefeatures", 0},
		{phaseWorkers, "POST nodefeatures", 0},
		{phasePods, "PATCH nodefeatures", nodes},
		{phaseReplaced, "POST nodefeatures", 1},
	}
	// Once a node has named its sets, its worker does not read them again, and the controller lists them for new nodes.
	for _, phase := range []string{phasePublish, phaseIdle, phaseChange, phaseWorkers, phasePods, phaseReplaced} {
		want = append(want, expected{phase, "GET nodefeaturesets", 0})
	}
	for _, p := range r.Phases[1:] {
		want = append(want, expected{p.Name, "POST nodefeaturesets", 0})
	}
	for _, want := range want {
		p := phases[want.phase]
		if p == nil {
			t.Fatalf("no phase %q", want.phase)
		}
		if got := p.Requests[want.request]; got != want.count {
			t.Errorf("%s: %d requests %s, want %d", want.phase, got, want.request, want.count)
		}
	}
	checkInstallation(t, c, shared)
	if got := phases[phaseFirst].Requests["POST nodefeaturesets"] > 0; got != shared {
		t.Errorf("sets were created: %t, want %t", got, shared)
	}
}

// TestDevicesCostNothingWithoutARuleThatReadsThem: no program asks for ResourceSlices before, and each node is written once after.
func TestDevicesCostNothingWithoutARuleThatReadsThem(t *testing.T) {
	const nodes, changes = 15, 3
	r, err := measure(t.Context(), testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true}), options{
		nodes: nodes, changes: changes, rules: 10, slices: true, idle: time.Second, parallel: 8, manager: testkit.Program(t, "assay-manager"), progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	read := false
	for _, p := range r.Phases {
		written[p.Name] = p.Requests["PATCH nodes/status"]
		read = read || p.Name == phaseDevices
		if list := p.Requests["LIST resourceslices"]; list > 0 != read && (!read || p.Name == phaseDevices) {
			t.Errorf("%s: %d lists of ResourceSlices", p.Name, list)
		}
	}
	want := map[string]int{phaseDevices: nodes, phaseDevicesIdle: 0, phaseSlice: changes, phaseController: 0}
	for name, count := range want {
		if written[name] != count {
			t.Errorf("%s: %d writes of Nodes, want %d", name, written[name], count)
		}
	}
}

// checkInstallation checks that what was measured is what the chart installs: its policies bind the controller, and its quota counts sets.
func checkInstallation(t *testing.T, c *cluster.Cluster, shared bool) {
	t.Helper()
	k := testkit.Client(t, c.User)
	var quota corev1.ResourceQuota
	if err := k.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: kustomize.Worker}, &quota); err != nil {
		t.Fatal(err)
	}
	for name, used := range quota.Status.Used {
		if (used.Value() > 0) != shared {
			t.Errorf("the quota counts %s of %s", &used, name)
		}
	}
	config := rest.CopyConfig(c.RESTConfig())
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + kustomize.Controller
	controller, err := client.New(config, client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var nodes corev1.NodeList
	if err := k.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"kubernetes.io/os":"other"}}}`))
	if err := controller.Status().Patch(t.Context(), &nodes.Items[0], patch); err == nil || !strings.Contains(err.Error(), "assay-node-writes") {
		t.Errorf("the controller changes the label of an operating system: %v, want that the policy rejects it", err)
	}
}

// TestARequestThatIsSentAgainCountsOnce: how many requests a busy API server rejects depends on the machine.
func TestARequestThatIsSentAgainCountsOnce(t *testing.T) {
	s := &snapshot{requests: map[string]int{}}
	for _, line := range []string{
		`apiserver_request_total{code="200",component="apiserver",dry_run="",resource="nodefeatures",scope="resource",subresource="",verb="PATCH"} 15`,
		`apiserver_request_total{code="429",component="apiserver",dry_run="",resource="nodefeatures",scope="resource",subresource="",verb="PATCH"} 1`,
	} {
		if err := s.add(line); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.requests["PATCH nodefeatures"]; got != 15 || s.rejected != 1 {
		t.Errorf("%d requests and %d rejected ones, want 15 and 1", got, s.rejected)
	}
}

// TestAStoppedRunPrintsThePhasesBefore: a run with thousands of nodes takes an hour.
func TestAStoppedRunPrintsThePhasesBefore(t *testing.T) {
	whole, shared := &result{Nodes: 1}, &result{Nodes: 1, Shared: true}
	for _, name := range []string{phasePublish, phaseLabel} {
		whole.Phases = append(whole.Phases, &phaseResult{Name: name, Processes: map[string]processResult{kube.APIServer: {CPUSeconds: 4}}})
	}
	shared.Phases = append(shared.Phases, &phaseResult{Name: phasePublish, Processes: map[string]processResult{kube.APIServer: {CPUSeconds: 2}}})
	var table strings.Builder
	if err := (results{whole, shared}).table(&table); err != nil {
		t.Fatal(err)
	}
	if got := table.String(); !strings.Contains(got, "publish: 2.0\n") || strings.Contains(got, "label all: 2") {
		t.Errorf("the table is\n%s", got)
	}
}

// TestSavedResultsPrintTheSamePage: a run that is killed leaves the phases before, from which the tables of the page can be printed.
func TestSavedResultsPrintTheSamePage(t *testing.T) {
	out := output{format: "markdown", save: filepath.Join(t.TempDir(), "results.json")}
	saved := results{{Nodes: 2, Shared: true, Start: &phaseResult{EtcdBytes: 1000}, Phases: []*phaseResult{
		{Name: phasePublish, Per: 2, Seconds: 8, EtcdBytes: 5000, Processes: map[string]processResult{kube.APIServer: {CPUSeconds: 0.05, MemoryBytes: 1e6}}},
		{Name: phaseChange, Per: 1, Processes: map[string]processResult{}, Values: map[string]float64{"labeledP50ms": 20}},
	}}}
	if err := out.keep(saved); err != nil {
		t.Fatal(err)
	}
	read, err := load(out.save)
	if err != nil {
		t.Fatal(err)
	}
	var before, after strings.Builder
	if err := errors.Join(out.print()(saved, &before), out.print()(read, &after)); err != nil {
		t.Fatal(err)
	}
	if before.String() != after.String() {
		t.Errorf("printed\n%s\nand from the file\n%s", &before, &after)
	}
	for _, row := range []string{
		"| CPU of the API server for the first publication | 25.0 ms a node |\n", "| size of the database for each node | 2 kB |\n",
		"| change to label, median | 20 ms |\n", "| publish | 8.0 s | 25.0 ms a node | 1 |",
	} {
		if !strings.Contains(after.String(), row) {
			t.Errorf("the row %q is missing in\n%s", row, &after)
		}
	}
}
