package baselines_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
)

// node returns a node whose worker has published features, in YAML.
func node(t *testing.T, name, features string) baseline.Node {
	t.Helper()
	f := &nfdv1alpha1.Features{}
	if err := yaml.UnmarshalStrict([]byte(features), f); err != nil {
		t.Fatalf("%v\n%s", err, features)
	}
	in := rules.Input{Node: rules.Node{Name: name}, Facts: facts.New(f, nil)}
	in.Publishers = []rules.Publisher{{Name: "assay/" + name, Facts: in.Facts}}
	return baseline.Node{Input: in}
}

func compile(t *testing.T, text string) *baseline.Baseline {
	t.Helper()
	object := &assayv1alpha1.NodeBaseline{}
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	b, report := baseline.Compile(&object.Spec, field.NewPath("spec"), rules.Options{})
	if b == nil || len(report.Warnings) > 0 {
		t.Fatalf("%v %v\n%s", report.Errors.ToAggregate(), report.Warnings, text)
	}
	return b
}

func nothing(string) bool { return false }

// TestAtMostOneNodeInTwentyFailsACheckOfAProposal plants differences in random fleets. What one node in twenty lacks is in the baseline, and
// exactly these nodes fail the check; what more nodes lack is in a comment with the number of nodes.
func TestAtMostOneNodeInTwentyFailsACheckOfAProposal(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 46))
		names := []string{"kernel", "bios", "driver-nvidia", "nvme-firmware", "rdma-ports", "handler-kata", "nvidia-com-gpu"}
		count := 1 + r.IntN(60)
		planted := map[string][]string{}
		var nodes []baseline.Node
		for i := range count {
			name := fmt.Sprintf("n%02d", i)
			value := func(check, usual, other string) string {
				if r.IntN(25) == 0 {
					planted[check] = append(planted[check], name)
					return other
				}
				return usual
			}
			nodes = append(nodes, node(t, name, fmt.Sprintf(`
attributes:
  kernel.version: {elements: {full: "%s"}}
  system.dmiid: {elements: {bios_version: "%s", board_asset_tag: "tag-%d"}}
  kubernetes.allocatable: {elements: {nvidia.com/gpu: "%s", hugepages-2Mi: "%d"}}
instances:
  kernel.module: {elements: [{attributes: {name: nvidia, version: "%s"}}, {attributes: {name: loop, version: "%d"}}]}
  storage.nvme: {elements: [{attributes: {name: nvme0, model: 'A "1"', firmware_rev: "1"}}, {attributes: {name: nvme1, model: B, firmware_rev: "%s"}}]}
  rdma.device: {elements: [{attributes: {name: mlx5_0}}%s]}
  kubernetes.runtimehandler: {elements: [{attributes: {name: ""}}%s]}
`, value("kernel", "6.1", "6.2"), value("bios", "2.1.0", "true"), i, value("nvidia-com-gpu", "8", "7"), i,
				value("driver-nvidia", "580.1", "570.9"), i, value("nvme-firmware", "2.0", "1.9"),
				value("rdma-ports", "", ", {attributes: {name: mlx5_1}}"), value("handler-kata", ", {attributes: {name: kata}}", ""))))
		}
		p := baselines.Propose("fleet", nil, nodes, nothing)
		result := compile(t, p.YAML()).Fleet(nodes)
		got := map[string][]string{}
		for _, d := range result.Deviations {
			got[d.Check] = append(got[d.Check], d.Node)
		}
		want := map[string][]string{}
		var left []string
		for _, name := range names {
			switch n := len(planted[name]); {
			case 100*(count-n) >= baselines.Share*count && n > 0:
				want[name] = planted[name]
			case n > 0 && 100*n < baselines.Share*count: // otherwise the planted value is what they share
				left = append(left, name)
			}
		}
		for name, list := range got { // if nearly all nodes have the planted value, the others fail the check
			if n := len(planted[name]); 100*n >= baselines.Share*count {
				want[name] = list
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: %d nodes: deviations (-want +got):\n%s\n%s", seed, count, diff, p.YAML())
		}
		var shown []string
		for i := range p.Left {
			shown = append(shown, p.Left[i].Name)
		}
		slices.Sort(left)
		if diff := cmp.Diff(left, shown); diff != "" {
			t.Fatalf("seed %d: %d nodes: comments (-want +got):\n%s\n%s", seed, count, diff, p.YAML())
		}
	}
}

// TestHiddenFeaturesAreNotProposed: the settings can hide features from everyone who can read rules.
func TestHiddenFeaturesAreNotProposed(t *testing.T) {
	nodes := []baseline.Node{node(t, "a", `attributes: {kernel.version: {elements: {full: "6.1"}}, system.dmiid: {elements: {bios_version: "2"}}}`)}
	p := baselines.Propose("fleet", nil, nodes, func(name string) bool { return name == "system.dmiid.bios_version" })
	if text := p.YAML(); !strings.Contains(text, "name: kernel") || strings.Contains(text, "bios") {
		t.Error(text)
	}
}

// TestAProposalShowsNoDirectionMarks: a node that reports a version with U+202E had its proposal read backwards in a terminal.
func TestAProposalShowsNoDirectionMarks(t *testing.T) {
	version := "1.0\u202e0.2"
	nodes := []baseline.Node{node(t, "a", fmt.Sprintf(`attributes: {kernel.version: {elements: {full: %q}}}`, version))}
	p := baselines.Propose("fleet", nil, nodes, nothing)
	text := p.YAML()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("got unprintable characters in %q", text)
	}
	b := compile(t, text)
	if result := b.Fleet(nodes); len(result.Deviating) > 0 {
		t.Errorf("got the deviating nodes %v of %s, want none", result.Deviating, text)
	}
}

// TestFirmwareIsComparedByModel: two kinds of network cards have versions of their own, and each card must have that of its kind.
func TestFirmwareIsComparedByModel(t *testing.T) {
	ports := func(name, first, second string) baseline.Node {
		return node(t, name, fmt.Sprintf(`instances: {rdma.device: {elements: [
		  {attributes: {name: mlx5_0, board_id: MT1, fw_ver: "%s"}}, {attributes: {name: mlx5_1, board_id: MT2, fw_ver: "%s"}}]}}`, first, second))
	}
	p := baselines.Propose("fleet", map[string]string{"pool": "gpu"}, []baseline.Node{ports("a", "1.0", "2.0")}, nothing)
	b := compile(t, strings.Replace(p.YAML(), "nodeSelector", "# nodeSelector", 1))
	result := b.Fleet([]baseline.Node{ports("same", "1.0", "2.0"), ports("swapped", "2.0", "1.0"), ports("old", "1.0", "1.9")})
	if diff := cmp.Diff([]string{"old", "swapped"}, result.Deviating); diff != "" {
		t.Errorf("%s\n%s", diff, p.YAML())
	}
}

// requirement is an entry of the form, as its validator reads it.
type requirement struct {
	ID          string   `json:"id"`
	Description string   `json:"description,omitempty"`
	Level       string   `json:"level,omitempty"`
	Status      string   `json:"status"`
	Evidence    []string `json:"evidence"`
	Notes       string   `json:"notes"`
}

// TestTheStanzaIsAnEntryOfTheForm puts the stanza of each status into the form of AI conformance.
func TestTheStanzaIsAnEntryOfTheForm(t *testing.T) {
	const gpu = `{instances: {gpu.nvidia: {elements: [{attributes: {model: H100}}]}, kernel.module: {elements: [{attributes: {name: nvidia, version: "%s"}}]}}}`
	good, bad := node(t, "good", fmt.Sprintf(gpu, "580.1")), node(t, "bad", fmt.Sprintf(gpu, "570.1"))
	silent := node(t, "silent", `{}`)
	silent.Unpublished = true
	// No worker runs on this node: a DRA driver has published its devices.
	sliced := node(t, "slices", `{instances: {dra.device: {elements: [{attributes: {driver.name: gpu.example.com, productName: X, driverVersion: 1.0.0}}]}}}`)
	sliced.Unpublished, sliced.Input.Publishers = true, nil
	b := compile(t, `{spec: {require: [{name: driver, matchFeatures: [{feature: kernel.module, matchExpressions: {version: {op: In, value: ["580.1"]}}}]}]}}`)
	for _, tc := range []struct {
		nodes         []baseline.Node
		checked       bool
		status, notes string
	}{
		{[]baseline.Node{good}, true, "Implemented", "1 node with accelerators, and all of them conform."},
		{[]baseline.Node{good, bad}, true, "Partially Implemented", "2 nodes with accelerators; 1 of them differ from their NodeBaseline."},
		{[]baseline.Node{good, silent}, true, "Partially Implemented", "1 node with accelerators; whether there are accelerators on 1 other node without published features is unknown."},
		{[]baseline.Node{good, sliced}, true, "Partially Implemented", "2 nodes with accelerators; the features of 1 of them are unknown. Mechanism: DRA: the versions on " +
			"1 node are in ResourceSlices of gpu.example.com."},
		{[]baseline.Node{sliced}, true, "Partially Implemented", "1 node with accelerators; the features of 1 of them are unknown."},
		{[]baseline.Node{silent}, true, "Partially Implemented", "No node of the cluster is known to have an accelerator; whether there are accelerators on " +
			"1 other node without published features is unknown."},
		{[]baseline.Node{good, bad}, false, "Not Implemented", "2 nodes with accelerators; no NodeBaseline checks 2 of them."},
		{[]baseline.Node{node(t, "cpu", `{}`)}, true, "N/A", "No node of the cluster has an accelerator."},
	} {
		e := &baselines.Evidence{Nodes: tc.nodes}
		if tc.checked {
			e.Reports = []*baselines.Report{baselines.New("gpus", b.Fleet(tc.nodes))}
		}
		text, err := os.ReadFile("testdata/AIConformance-1.37.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var form struct {
			Metadata map[string]string        `json:"metadata"`
			Spec     map[string][]requirement `json:"spec"`
		}
		if err := yaml.UnmarshalStrict(text, &form); err != nil {
			t.Fatal(err)
		}
		stanza := e.Stanza()
		var entries []requirement
		if err := yaml.UnmarshalStrict([]byte(stanza.YAML("")), &entries); err != nil || len(entries) != 1 {
			t.Fatalf("%v\n%s", err, stanza.YAML(""))
		}
		at := slices.IndexFunc(form.Spec["accelerators"], func(r requirement) bool { return r.ID == entries[0].ID })
		if at < 0 {
			t.Fatalf("the form has no entry %q", entries[0].ID)
		}
		if got := entries[0]; got.Status != tc.status || !strings.Contains(got.Notes, tc.notes) || got.Level != "SHOULD" || got.Description == "" || !slices.Equal(got.Evidence, []string{"driver-runtime-management.md"}) {
			t.Errorf("the stanza is %+v, want %q and %q", got, tc.status, tc.notes)
		}
		var out strings.Builder
		if err := e.Write(&out); err != nil || !strings.Contains(out.String(), stanza.YAML("  ")) {
			t.Errorf("%v: the evidence does not end with the stanza:\n%s", err, out.String())
		}
	}
}
