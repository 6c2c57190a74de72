package lint_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lint"
)

// TestTheExampleOfAConflictMatchesBothRules: a warning about two rules that give one key names a node, which both of them match.
func TestTheExampleOfAConflictMatchesBothRules(t *testing.T) {
	for name, tc := range map[string]struct{ earlier, later, want string }{
		"Attributes": {
			`{feature: cpu.topology, matchExpressions: {cpu_count: {op: Ge, value: ["64"]}}}`,
			`{feature: memory.total, matchExpressions: {bytes: {op: Gt, value: ["64Gi"]}}}`,
			"cpu.topology.cpu_count 192 and memory.total.bytes 135168000000",
		},
		"OneAttribute": {
			`{feature: kernel.version, matchExpressions: {full: {op: Ge, value: ["5.10"], type: version}}}`,
			`{feature: kernel.version, matchExpressions: {full: {op: Le, value: ["6.1"], type: version}}}`,
			"kernel.version.full 5.14.0-427.13.1.el9_4.s390x",
		},
		"Enum": {
			`{feature: system.osrelease, matchExpressions: {ID: {op: In, value: [ubuntu, debian]}}}`,
			`{feature: system.osrelease, matchExpressions: {ID: {op: In, value: [debian, rocky]}}}`, "system.osrelease.ID debian",
		},
		"Flags": {
			`{feature: cpu.cpuid, matchExpressions: {AVX2: {op: Exists}}}`,
			`{feature: cpu.cpuid, matchExpressions: {AVX512F: {op: Exists}}}`,
			"cpu.cpuid.AVX2 and cpu.cpuid.AVX512F",
		},
		"Devices": {
			`{feature: network.device, matchExpressions: {speed: {op: Ge, value: ["10000"]}}}`,
			`{feature: network.device, matchExpressions: {speed: {op: Lt, value: ["10000"]}}}`, "one network.device for each",
		},
		"Unknown": {
			`{feature: cpu.cpuid, matchExpressions: {AMXBF16: {op: DoesNotExist}}}`,
			`{feature: cpu.cpuid, matchExpressions: {AVX2: {op: Exists}}}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{rules: [{name: a, labels: {k: a}, matchFeatures: [` + tc.earlier + `]}, ` +
				`{name: b, labels: {k: b}, matchFeatures: [` + tc.later + `]}]}`
			got := ""
			for _, line := range strings.Split(lintText(t, text, lint.Options{}), "\n") {
				if strings.Contains(line, "this one wins") {
					got = line
				}
			}
			if !strings.HasSuffix(got, "this one wins"+strings.TrimSuffix(", as on a node with "+tc.want, ", as on a node with ")) {
				t.Fatalf("got %q, want the example %q", got, tc.want)
			}
			if tc.want == "" || name == "Devices" {
				return
			}
			spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
			if err := yaml.Unmarshal([]byte(text), spec); err != nil {
				t.Fatal(err)
			}
			node := map[string]facts.Feature{}
			elements := map[string]map[string]string{}
			for _, m := range regexp.MustCompile(`([a-z]+\.[a-z]+)\.([A-Za-z0-9_]+) ?([^ ]*)`).FindAllStringSubmatch(tc.want, -1) {
				if elements[m[1]] == nil {
					elements[m[1]] = map[string]string{}
				}
				elements[m[1]][m[2]] = strings.TrimSuffix(m[3], "and")
				node[m[1]] = feature(dictionary.Find(m[1]), []map[string]string{elements[m[1]]})
			}
			for i := range spec.Rules {
				if slices.Contains(evaluate(t, &spec.Rules[i], []*facts.Facts{facts.FromMap(node, nil)}), differs) {
					t.Errorf("rule %s does not match a node with %s", spec.Rules[i].Name, tc.want)
				}
			}
		})
	}
}
