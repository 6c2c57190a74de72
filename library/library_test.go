package library_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/library"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/suite"
)

func entries(t *testing.T) []*library.Entry {
	t.Helper()
	list, err := library.Entries()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTheTestsOfTheLibraryPass(t *testing.T) {
	tests, err := suite.Find(".")
	if err != nil || len(tests) < 2*len(entries(t)) {
		t.Fatalf("%d tests, error %v; every object needs two at least", len(tests), err)
	}
	runner := suite.NewRunner()
	for _, test := range tests {
		if r := runner.Run(test, false); r.Failure != "" {
			t.Errorf("%s:\n%s", test.Name, r.Failure)
		}
	}
}

// Without a test in which it does not match, a rule could always match; without a test in which it matches, it could never match.
func TestEveryRuleMatchesInOneTestAndNotInAnother(t *testing.T) {
	for _, e := range entries(t) {
		set, report := rules.CompileSpec(e.ID, &e.Object.Spec, rules.Options{})
		if len(report.Errors) > 0 {
			t.Errorf("%s: %v", e.ID, report.Errors)
			continue
		}
		program := rules.Link(rules.Options{}, set)
		tried := map[string][2]int{}
		for _, test := range testsOf(t, e.ID) {
			var published []manifest.Published
			if test.Facts != nil {
				data, err := yaml.Marshal(test.Facts)
				if err != nil {
					t.Fatal(err)
				}
				if published, err = manifest.Features(e.ID, data, facts.NewInterner()); err != nil {
					t.Fatal(e.ID, err)
				}
			}
			node := gather.Node{Name: cmp.Or(test.Node, "node-1"), Labels: test.NodeLabels}
			selected, _ := gather.Select(gather.Policy{Namespace: "assay-system"}, node, nil, published)
			for _, r := range program.Eval(selected.Input(node, nil)).Rules() {
				n := tried[r.Rule]
				if r.Matched {
					n[1]++
				} else {
					n[0]++
				}
				tried[r.Rule] = n
			}
		}
		for _, r := range e.Object.Spec.Rules {
			if n := tried[r.Name]; n[0] == 0 || n[1] == 0 {
				t.Errorf("%s: rule %q matches in %d tests and does not in %d; write at least one of each", e.ID, r.Name, n[1], n[0])
			}
		}
	}
}

// TestDriverVersionsOfWholeMachines evaluates the rules on what the worker publishes for the archives of machines.
func TestDriverVersionsOfWholeMachines(t *testing.T) {
	list, err := library.Get("driver-versions")
	if err != nil {
		t.Fatal(err)
	}
	set, report := rules.CompileSpec(list[0].ID, &list[0].Object.Spec, rules.Options{})
	if len(report.Errors) > 0 {
		t.Fatal(report.Errors)
	}
	const prefix = "feature.node.kubernetes.io/driver-versions."
	for host, want := range map[string]map[string]string{
		"server": {prefix + "nvidia": "580.95.05", prefix + "nvidia.module": "open", prefix + "mlx5_core": "24.10-1.1.4"},
		"epyc":   nil, // its NPU's driver is the kernel's, and has no version
		"a64fx":  nil,
	} {
		data, err := os.ReadFile("../test/hosts/" + host + "/nodefeature.yaml")
		if err != nil {
			t.Fatal(err)
		}
		published, err := manifest.Features(host, data, facts.NewInterner())
		if err != nil {
			t.Fatal(host, err)
		}
		published[0].Labels = nil // those of the worker
		node := gather.Node{Name: published[0].Node}
		selected, _ := gather.Select(gather.Policy{Namespace: "assay-system"}, node, nil, published)
		if got := rules.Link(rules.Options{}, set).Eval(selected.Input(node, nil)).Labels(); !maps.Equal(got, want) {
			t.Errorf("%s: labels %v, want %v", host, got, want)
		}
	}
}

func testsOf(t *testing.T, id string) []suite.Entry {
	t.Helper()
	data, err := os.ReadFile(id + ".test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table suite.Table
	if err := yaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(id, err)
	}
	return table.Tests
}

func TestLintFindsNothing(t *testing.T) {
	names, err := ids.Load("", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries(t) {
		for _, w := range lint.Spec(&e.Object.Spec, lint.Options{IDs: names}) {
			t.Errorf("%s: %v", e.ID, w)
		}
	}
}

func TestEveryObjectIsDescribed(t *testing.T) {
	for _, e := range entries(t) {
		if e.Group == "" || e.Sources == "" || e.Description == "" || strings.Contains(e.Description, "\n") {
			t.Errorf("%s: group %q, sources %q, description %q: want a line each", e.ID, e.Group, e.Sources, e.Description)
		}
		for _, key := range e.Labels {
			name, ok := strings.CutPrefix(key, "feature.node.kubernetes.io/")
			if strings.HasPrefix(name, "system-os_release.") && e.ID == "openshift" {
				continue // the names that operators look for
			}
			if !ok || (name != e.ID && !strings.HasPrefix(name, e.ID+".") && key != "feature.node.kubernetes.io/bare-metal") {
				t.Errorf("%s: label %s, want feature.node.kubernetes.io/%s or that and a dot", e.ID, key, e.ID)
			}
		}
	}
}

// newer lists IDs that are not in the embedded lists, and their sources.
var newer = map[string]string{
	"1002:7410": "AMD GPU operator: MI210 VF", "1002:74a0": "amdgpu: MI300A", "1002:74a1": "amdgpu: MI300X",
	"1002:74a2": "AMD GPU operator: MI308X", "1002:74a5": "AMD GPU operator: MI325X", "1002:74a8": "AMD GPU operator: MI308X HF",
	"1002:74a9": "AMD GPU operator: MI300X HF", "1002:74b5": "AMD GPU operator: MI300X VF", "1002:74b6": "AMD GPU operator: MI308X VF",
	"1002:74b9": "AMD GPU operator: MI325X VF", "1002:74bc": "AMD GPU operator: MI308X HF VF", "1002:74bd": "AMD GPU operator: MI300X HF VF",
	"1002:75a0": "AMD GPU operator: MI350X", "1002:75a3": "AMD GPU operator: MI355X",
	"1002:75b0": "AMD GPU operator: MI350X VF", "1002:75b3": "AMD GPU operator: MI355X VF",
	"10de:26b9": "NVIDIA driver: L40S", "10de:26ba": "NVIDIA driver: L20", "10de:27b6": "NVIDIA driver: L2",
	"10de:2329": "NVIDIA driver: H20", "10de:2335": "NVIDIA driver: H200", "10de:233b": "NVIDIA driver: H200 NVL",
	"10de:2342": "NVIDIA driver: GH200", "10de:2348": "NVIDIA driver: GH200 144G",
	"10de:2901": "NVIDIA driver: B200", "10de:2941": "NVIDIA driver: GB200", "10de:29bc": "NVIDIA driver: B100",
	"10de:2bb5": "NVIDIA driver: RTX PRO 6000 Server", "10de:3182": "NVIDIA driver: B300",
	"10de:31c2": "NVIDIA driver: GB300", "10de:31c3": "NVIDIA driver: GB300", "10de:22a3": "NVIDIA driver: NVSwitch of H100", "10de:1ac2": "NVIDIA driver: NVSwitch of V100",
	"8086:5696": "xe: DG2", "8086:5697": "xe: DG2", "8086:56b2": "xe: DG2", "8086:56b3": "xe: DG2", "8086:56ba": "xe: DG2",
	"8086:56bb": "xe: DG2", "8086:56bc": "xe: DG2", "8086:56bd": "xe: DG2", "8086:56c2": "xe: ATS-M",
	"8086:e20b": "xe: Arc B580", "8086:e20c": "xe: Arc B570", "8086:e211": "xe: Arc Pro B60", "8086:e212": "xe: Arc Pro B50",
	"1022:1502": "amdxdna: NPU of Phoenix", "1022:17f0": "amdxdna: NPU of Strix",
	"1d0f:0ec2": "ena", "1d0f:1ec2": "ena", "1d0f:ec21": "ena", "1d0f:efa3": "efa",
	"1d0f:7065": "neuron: Inferentia", "1d0f:7066": "neuron: Inferentia", "1d0f:7067": "neuron: Inferentia", "1d0f:7364": "neuron: Trainium2",
	"8086:643e": "intel_vpu: Lunar Lake", "8086:7d1d": "intel_vpu: Meteor Lake", "8086:ad1d": "intel_vpu: Arrow Lake", "8086:b03e": "intel_vpu: Panther Lake",
	"1da3:1060": "habanalabs: Gaudi 3",
	"8086:0b30": "dfl-pci: N3000",
	"8086:4940": "qat_4xxx", "8086:4942": "qat_4xxx", "8086:4944": "qat_4xxx", "8086:4946": "qat_420xx",
	"8086:0b25": "idxd: DSA of Sapphire Rapids", "8086:11fb": "idxd: DSA of Granite Rapids D", "8086:1212": "idxd: DSA of Diamond Rapids",
	"8086:0cfe": "idxd: IAA of Sapphire Rapids", "8086:1216": "idxd: IAA of Diamond Rapids",
	"8086:2710": "dlb2", "8086:2714": "dlb2: DLB 2.5",
	"usb 1a6e:089a": "Coral's documentation: before its firmware is loaded", "usb 18d1:9302": "Coral's documentation: with its firmware",
	"usb 10c4:8a2a": "zwave and zigbee of HubZ: Linux driver cp210x", "usb 1546:01a9": "u-blox 9",
	"usb 1050:0030": "Yubico: YubiHSM 2",
	"usb 0463:ffff": "Network UPS Tools: usbhid-ups",
}

func TestIDsAreInTheLists(t *testing.T) {
	names, err := ids.Load("", "")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range entries(t) {
		for _, m := range matchers(e.Object) {
			if m.Feature != "pci.device" && m.Feature != "usb.device" {
				continue
			}
			vendorName, deviceName, bus := names.PCIVendor, names.PCIDevice, ""
			if m.Feature == "usb.device" {
				vendorName, deviceName, bus = names.USBVendor, names.USBDevice, "usb "
			}
			for _, vendor := range values(m, "vendor") {
				if _, ok := vendorName(vendor); !ok {
					t.Errorf("%s: the list does not have the vendor %s%s", e.ID, bus, vendor)
				}
				for _, id := range values(m, "device") {
					key := fmt.Sprintf("%s%s:%s", bus, vendor, id)
					used[key] = true
					if _, ok := deviceName(vendor, id); !ok && newer[key] == "" {
						t.Errorf("%s: the list does not have %s; name its source in newer", e.ID, key)
					} else if ok && newer[key] != "" {
						t.Errorf("%s: the list has %s; delete it from newer", e.ID, key)
					}
				}
			}
		}
	}
	for key := range newer {
		if !used[key] {
			t.Errorf("newer: no rule uses %s", key)
		}
	}
}

func matchers(object *nfdv1alpha1.NodeFeatureRule) (out []nfdv1alpha1.FeatureMatcherTerm) {
	for _, r := range object.Spec.Rules {
		out = append(out, r.MatchFeatures...)
		for _, alternative := range r.MatchAny {
			out = append(out, alternative.MatchFeatures...)
		}
	}
	return out
}

func values(m nfdv1alpha1.FeatureMatcherTerm, element string) []string {
	if m.MatchExpressions == nil || (*m.MatchExpressions)[element] == nil {
		return nil
	}
	return (*m.MatchExpressions)[element].Value
}

var update = flag.Bool("update", false, "write the table of docs/library.md")

func TestTheDocumentedTableIsCurrent(t *testing.T) {
	const file, begin, end = "../docs/library.md", "<!-- table -->\n", "<!-- end of table -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(page), begin)
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s: want the lines %q and %q", file, begin, end)
	}
	var table strings.Builder
	group := ""
	for _, e := range entries(t) {
		if e.Group != group {
			group = e.Group
			fmt.Fprintf(&table, "\n### %s\n\n| id | labels | finds |\n|---|---|---|\n", group)
		}
		var labels []string
		for _, key := range e.Labels {
			labels = append(labels, "`"+strings.TrimPrefix(key, "feature.node.kubernetes.io/")+"`")
		}
		if len(labels) == 0 {
			labels = []string{"computed from the devices"}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", e.ID, strings.Join(labels, ", "), e.Description)
	}
	want := head + begin + table.String() + "\n" + end + tail
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s is out of date; go test ./library -update writes it", file)
	}
}
