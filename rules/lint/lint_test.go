package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lint"
)

func lintText(t *testing.T, text string, o lint.Options) string {
	t.Helper()
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, w := range lint.Spec(spec, o) {
		describes(t, w)
		out = append(out, w.String())
	}
	return strings.Join(out, "\n")
}

const kernel = `matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]`

func TestNoExecuteIsFineIfTheWorkerToleratesIt(t *testing.T) {
	rule := `{rules: [{name: a, taints: [{key: example.com/a, value: b, effect: NoExecute}], ` + kernel + `}]}`
	for name, tc := range map[string]struct {
		tolerations []corev1.Toleration
		warned      bool
	}{
		"None":           {tolerations: []corev1.Toleration{}, warned: true},
		"Unknown":        {},
		"Everything":     {tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		"TheKey":         {tolerations: []corev1.Toleration{{Key: "example.com/a", Operator: corev1.TolerationOpExists}}},
		"KeyAndValue":    {tolerations: []corev1.Toleration{{Key: "example.com/a", Value: "b", Effect: corev1.TaintEffectNoExecute}}},
		"AnotherValue":   {tolerations: []corev1.Toleration{{Key: "example.com/a", Value: "c"}}, warned: true},
		"AnotherEffect":  {tolerations: []corev1.Toleration{{Key: "example.com/a", Value: "b", Effect: corev1.TaintEffectNoSchedule}}, warned: true},
		"AnotherKeyOnly": {tolerations: []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}}, warned: true},
	} {
		if got := lintText(t, rule, lint.Options{Tolerations: tc.tolerations}); (got != "") != tc.warned {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestConflicts(t *testing.T) {
	rule := func(name, value, match string) string {
		return `{name: ` + name + `, labels: {a: "` + value + `"}, ` + match + `}`
	}
	pci := func(device string) string {
		return `matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["8086"]}, device: {op: In, value: ["` + device + `"]}}}]`
	}
	block := func(rotational string) string {
		return `matchFeatures: [{feature: storage.block, matchExpressions: {rotational: {op: In, value: ["` + rotational + `"]}}}]`
	}
	cpus := func(op, bound string) string {
		return `matchFeatures: [{feature: cpu.topology, matchExpressions: {cpu_count: {op: ` + op + `, value: ["` + bound + `"]}}}]`
	}
	numa := `matchFeatures: [{feature: memory.numa, matchExpressions: {is_numa: {op: IsTrue}}}]`
	for name, tc := range map[string]struct {
		one, two string
		warned   bool
	}{
		"Unrelated":        {one: rule("x", "1", kernel), two: rule("y", "2", numa), warned: true},
		"SameMatcher":      {one: rule("x", "1", kernel), two: rule("y", "2", kernel), warned: true},
		"SameValue":        {one: rule("x", "1", kernel), two: rule("y", "1", numa)},
		"OtherDevices":     {one: rule("x", "1", pci("0bd5")), two: rule("y", "2", pci("0bda"))},
		"DefaultFirst":     {one: `{name: x, labels: {a: "{node}"}}`, two: rule("y", "2", kernel)},
		"ExceptionAfter":   {one: rule("x", "1", kernel), two: rule("y", "2", kernel[:len(kernel)-1]+`, {feature: memory.numa, matchExpressions: {is_numa: {op: IsTrue}}}]`)},
		"WithConditions":   {one: rule("x", "1", kernel), two: rule("y", "2", `conditions: [{op: eq, args: {values: ["{node}", "n1"]}}]`)},
		"OtherDisks":       {one: rule("x", "1", block("0")), two: rule("y", "2", block("1")), warned: true},
		"Tiers":            {one: rule("x", "1", cpus("Ge", "8")), two: rule("y", "2", cpus("Ge", "64"))},
		"TiersBackwards":   {one: rule("x", "1", cpus("Ge", "64")), two: rule("y", "2", cpus("Ge", "8")), warned: true},
		"Ranges":           {one: rule("x", "1", cpus("Ge", "64")), two: rule("y", "2", cpus("Lt", "64"))},
		"RangesThatMeet":   {one: rule("x", "1", cpus("Ge", "64")), two: rule("y", "2", cpus("Le", "64")), warned: true},
		"NamespaceWritten": {one: rule("x", "1", kernel), two: strings.Replace(rule("y", "2", numa), "{a:", "{feature.node.kubernetes.io/a:", 1), warned: true},
	} {
		got := lintText(t, `{rules: [`+tc.one+`, `+tc.two+`]}`, lint.Options{})
		if strings.Contains(got, `rule "x"`) != tc.warned {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestATemplateMayLeaveMatchersToOthers(t *testing.T) {
	rule := `{rules: [{name: a, labels: {a: "b"}}]}`
	if got := lintText(t, rule, lint.Options{}); got == "" {
		t.Error("a rule without a matcher draws no warning")
	}
	for name, text := range map[string]string{
		"Template": rule,
		"Selector": `{nodeSelector: {matchLabels: {a: b}}, rules: [{name: a, labels: {a: "b"}}]}`,
		"Computed": `{rules: [{name: a, labels: {a: "{n1}"}}]}`,
		"Based":    `{basedOn: [{name: x}], rules: [{name: a, labels: {a: "b"}}]}`,
	} {
		if got := lintText(t, text, lint.Options{Template: name == "Template"}); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Lint must not warn about names that are new or that other publishers use.
func TestUnknownNamesThatAreNearNothingAreLeftAlone(t *testing.T) {
	for name, term := range map[string]string{
		"NewFlag":       `{feature: cpu.cpuid, matchExpressions: {AVX10_2: {op: Exists}, SVE3: {op: Exists}, FOO: {op: Exists}}}`,
		"VendorFeature": `{feature: vendor.gadget, matchExpressions: {x: {op: Exists}}}`,
		"ThreeParts":    `{feature: vendor.gadget.port, matchExpressions: {x: {op: Exists}}}`,
		"ConfigOption":  `{feature: kernel.config, matchExpressions: {MY_OPTION: {op: In, value: ["y"]}}}`,
		"OSRelease":     `{feature: system.osrelease, matchExpressions: {OSTREE_VERSION: {op: Exists}, RHEL_VERSION: {op: Exists}}}`,
		"NewDevice":     `{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["fffe"]}, device: {op: In, value: ["fffd"]}}}`,
		"HexRegexp":     `{feature: pci.device, matchExpressions: {vendor: {op: InRegexp, value: ["^(10DE|10de)$"]}}}`,
		"HugePages":     `{feature: memory.hugepages, matchExpressions: {hugepages-2Mi: {op: Gt, value: ["0"]}}}`,
	} {
		if got := lintText(t, `{rules: [{name: a, labels: {a: "b"}, matchFeatures: [`+term+`]}]}`, lint.Options{}); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestFeaturesAreListedOnce(t *testing.T) {
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
	text := `{rules: [{name: a, matchFeatures: [{feature: CPU.cpuid}, {feature: rule.matched}], matchAny: [{matchFeatures: [{feature: cpu.cpuid}, {feature: x.y}]}]}]}`
	if err := yaml.Unmarshal([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range lint.Features(spec) {
		got = append(got, f.Path+"="+f.Feature)
	}
	want := "spec.rules[0].matchFeatures[0].feature=cpu.cpuid spec.rules[0].matchAny[0].matchFeatures[1].feature=x.y"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
}

// The dictionary must contain all names and values that the worker publishes for a whole machine, so that rules on them cause no
// warnings.
func TestWhatMachinesPublishIsKnown(t *testing.T) {
	files, err := filepath.Glob("../../test/hosts/*/nodefeature.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no machines: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := &nfdv1alpha1.NodeFeature{}
		if err := yaml.Unmarshal(data, object); err != nil {
			t.Fatal(err)
		}
		elements := map[string]map[string]*nfdv1alpha1.MatchExpression{}
		add := func(feature, element string, e *nfdv1alpha1.MatchExpression) {
			if elements[feature] == nil {
				elements[feature] = map[string]*nfdv1alpha1.MatchExpression{}
			}
			elements[feature][element] = e
		}
		in := func(value string) *nfdv1alpha1.MatchExpression {
			return &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchIn, Value: []string{value}}
		}
		for feature, set := range object.Spec.Features.Flags {
			for e := range set.Elements {
				add(feature, e, &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists})
			}
		}
		for feature, set := range object.Spec.Features.Attributes {
			for e, value := range set.Elements {
				add(feature, e, in(value))
			}
		}
		for feature, set := range object.Spec.Features.Instances {
			for _, instance := range set.Elements {
				for e, value := range instance.Attributes {
					add(feature, e, in(value))
				}
			}
		}
		if len(elements) == 0 {
			t.Errorf("%s publishes nothing", file)
		}
		for feature, names := range elements {
			exprs := nfdv1alpha1.MatchExpressionSet(names)
			spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "a", Labels: map[string]string{"a": "b"},
				MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: feature, MatchExpressions: &exprs}}}}}
			for _, w := range lint.Spec(spec, lint.Options{}) {
				t.Errorf("%s: %s", file, w)
			}
		}
	}
}

// Matchers from rules in real clusters that can never match.
func TestWhatSourcesNeverPublish(t *testing.T) {
	for name, tc := range map[string]struct{ term, want string }{
		"NetworkAttribute": {`{feature: network.device, matchExpressions: {vendor: {op: In, value: ["8086"]}}}`, "network.device has no vendor; it has mtu, name"},
		"StorageAttribute": {`{feature: storage.block, matchExpressions: {size: {op: Gt, value: ["1"]}}}`, "storage.block has no size; it has"},
		"USBAttribute":     {`{feature: usb.device, matchExpressions: {product: {op: Exists}}}`, "usb.device has no product; it has"},
		"PCIAttribute":     {`{feature: pci.device, matchExpressions: {vendorID: {op: Exists}}}`, "pci.device has no vendorID; "},
		"LabelAsFeature":   {`{feature: network-sriov.capable, matchExpressions: {x: {op: Exists}}}`, "network-sriov.capable is the name of a label; the features of network are network.device"},
		"VendorOfCPUID":    {`{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [GenuineIntel]}}}`, `matchExpressions[vendor_id].value[0]: vendor_id is never "GenuineIntel": write Intel`},
		"RotationalFalse":  {`{feature: storage.block, matchExpressions: {rotational: {op: In, value: ["false"]}}}`, `rotational is never "false": write 0`},
		"NUMATrue":         {`{feature: memory.numa, matchExpressions: {is_numa: {op: In, value: ["True"]}}}`, `is_numa is never "True": write true`},
		"NUMAExists":       {`{feature: memory.numa, matchExpressions: {is_numa: {op: Exists}}}`, "is_numa is false where it is not true, and exists on either: write op: IsTrue"},
		"USBProduct":       {`{feature: usb.device, matchExpressions: {class: {op: In, value: ["6238"]}}}`, `"6238" looks like a product; did you mean device?`},
	} {
		if got := lintText(t, `{rules: [{name: a, labels: {a: "b"}, matchFeatures: [`+tc.term+`]}]}`, lint.Options{}); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	for name, tc := range map[string]struct{ outputs, want string }{
		"ReferenceInLabel":       {`labels: {a: "v{@kernel.versoin.major}"}`, "did you mean @kernel.version.major? No source publishes kernel.versoin"},
		"ReferenceInCondition":   {`nodeConditions: [{type: example.com/A, status: "True", message: "{@kernel.versoin.major}"}]`, "did you mean @kernel.version.major? No source publishes kernel.versoin"},
		"ReferenceAsStatus":      {`nodeConditions: [{type: example.com/A, status: "{@pci.device.vendor == '10de'}"}]`, "pci.device is a list of instances, and @ refers to attributes; write {@pci.device[0].vendor}"},
		"ReferenceWithoutBraces": {`nodeConditions: [{type: example.com/A, status: "True", message: "@kernel.version.full"}]`, `messages are written as they are, with the @: write "{@kernel.version.full}"`},
		"ReferenceToInstances":   {`labels: {a: "@pci.device.vendor"}`, "pci.device is a list of instances, and @ refers to attributes; write {@pci.device[0].vendor}"},
		"WholeNameInATemplate":   {`labelsTemplate: 'a={{index (index . "kernel.version") "full"}}'`, `the data of a template has no key "kernel.version": .kernel.version is the list of what matched, for {{range .kernel.version}}`},
	} {
		if got := lintText(t, `{rules: [{name: a, `+tc.outputs+`, `+kernel+`}]}`, lint.Options{}); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A function of a whole feature was taken for an element: the warning said to write {@pci.device.len()} instead of {@pci.device.len()}.
func TestAFunctionOfAFeatureIsNotAnElement(t *testing.T) {
	for _, text := range []string{
		`labels: {a: "{@pci.device.len()}"}`, `labels: {a: "{@memory.node.sum('bytes')}"}`, `conditions: [{op: eq, args: {values: ["{@gpu.nvidia.len()}", 4]}}]`,
	} {
		if got := lintText(t, `{rules: [{name: a, labels: {b: "c"}, `+strings.Replace(text, `labels: {a`, `annotations: {a`, 1)+`}]}`, lint.Options{}); got != "" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// An annotation was "@cpu.model.name" on the Node, and a template over a term without matchExpressions wrote nothing, both without a warning.
func TestWhatIsWrittenAsItIs(t *testing.T) {
	cpu := `matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: Exists}}}]`
	for name, tc := range map[string]struct{ rule, want string }{
		"Annotation":      {`annotations: {a: "@cpu.model.name"}, ` + cpu, `annotations are written as they are, with the @: write "{@cpu.model.name}"`},
		"AnotherFeature":  {`annotations: {a: "@cpu.model.physical_cores"}, ` + cpu, "cpu.model has no physical_cores; did you mean cpu.topology.core_count?"},
		"NoExpressions":   {`labelsTemplate: "{{range .network.device}}a={{.speed}}{{end}}", matchFeatures: [{feature: network.device}]`, "write matchExpressions: {} for all elements"},
		"MajorThatIsOpen": {`labels: {a: b}, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ["6"]}, minor: {op: Ge, value: ["8"]}}}]`, `"6.8"`},
	} {
		if got := lintText(t, `{rules: [{name: a, `+tc.rule+`}]}`, lint.Options{}); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A reference to an element that does not exist was advised to be put into braces, where it does not exist either.
func TestAnnotationsWithUnknownReferencesDrawOneWarning(t *testing.T) {
	got := lintText(t, `{rules: [{name: a, annotations: {a: "@cpu.model.physical_cores"}, matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: Exists}}}]}]}`, lint.Options{})
	if strings.Contains(got, "write") || strings.Count(got, "\n") > 0 || !strings.Contains(got, "unless it is in braces; cpu.model has no physical_cores; did you mean cpu.topology.core_count?") {
		t.Errorf("got %s", got)
	}
}

// network.cliques is a proposal for NFD.
func TestProposedFeaturesDrawNoWarning(t *testing.T) {
	if got := lintText(t, `{rules: [{name: a, labels: {a: "b"}, matchFeatures: [{feature: network.cliques, matchExpressions: {a: {op: Exists}}}]}]}`, lint.Options{}); got != "" {
		t.Errorf("got %s", got)
	}
}
