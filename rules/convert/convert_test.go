package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

var update = flag.Bool("update", false, "rewrite the expected results")

// longForm converts a list of rules and returns it as one document.
func longForm(id string, source []byte) ([]*yaml.Node, []Note, error) {
	roots, err := compose.ParseTrees(id, source)
	if err != nil {
		return nil, nil, err
	}
	return roots, LongForm(roots[0].Content[0]), nil
}

// The converted form of each source in testdata must equal the file next to it: the objects, followed by the notes as comments.
func TestConvert(t *testing.T) {
	kinds := map[string]func(string, []byte) ([]*yaml.Node, []Note, error){
		"ironic": Ironic, "matchon": Custom, "openshift": Custom, "longform": longForm,
	}
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatal("no cases", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(name, "-")
			objects, notes, err := kinds[kind](filepath.Base(input), source)
			if err != nil {
				t.Fatal(err)
			}
			got := render(t, objects, notes)
			golden := strings.Replace(input, ".in.yaml", ".out.yaml", 1)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			// Converting the result again must not change it.
			if kind != "longform" {
				again, notes, err := Custom("again", []byte(render(t, objects, nil)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(render(t, objects, nil), render(t, again, notes)); diff != "" {
					t.Errorf("-once +twice\n%s", diff)
				}
			}
		})
	}
}

func TestConvertRefuses(t *testing.T) {
	tests := map[string]struct {
		convert func(string, []byte) ([]*yaml.Node, []Note, error)
		source  string
		want    string
	}{
		"IronicUnknownOperator":   {Ironic, "[{conditions: [{op: ne, args: [1, 2]}], actions: [{op: fail, args: [x]}]}]", `unknown operator "ne"`},
		"IronicOperatorReadAsTag": {Ironic, "[{conditions: [{op: !eq , args: [1, 2]}], actions: [{op: fail, args: [x]}]}]", "quote operators that begin with !"},
		"IronicUnknownAction":     {Ironic, "[{actions: [{op: reboot}]}]", `unknown action "reboot"`},
		"IronicTooManyArguments":  {Ironic, "[{actions: [{op: fail, args: [a, b]}]}]", "expected msg, found 2 arguments"},
		"IronicUnknownField":      {Ironic, "[{fields: 1, actions: [{op: fail, args: [a]}]}]", "unknown field fields"},
		"IronicWithoutActions":    {Ironic, "[{description: x}]", "actions: expected a list"},
		"MatchOnBesideLabels":     {Custom, "[{name: x, labels: {a: b}, matchOn: [{cpuId: [AVX]}]}]", "not labels"},
		"MatchOnEmpty":            {Custom, "[{name: x, matchOn: []}]", "expected a list with at least one matcher"},
		"MatchOnEmptyMatcher":     {Custom, "[{name: x, matchOn: [{}]}]", "expected pciId, usbId"},
		"MatchOnUnknown":          {Custom, "[{name: x, matchOn: [{cpu: [AVX]}]}]", "cpu: unknown"},
		"MatchOnNoAttribute":      {Custom, "[{name: x, matchOn: [{pciId: {}}]}]", "at least one of class"},
		"MatchOnWrongAttribute":   {Custom, "[{name: x, matchOn: [{pciId: {serial: [a]}}]}]", "unknown attribute serial"},
		"MatchOnNotAList":         {Custom, "[{name: x, matchOn: [{cpuId: AVX}]}]", "expected a list"},
		"UnknownFieldOfRule":      {Custom, "[{name: x, label: {a: b}}]", "unknown field label"},
		"UnknownKind":             {Custom, "kind: Pod", "found kind Pod"},
		"DuplicateKey":            {Custom, "a: 1\na: 2", "already on line 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := tt.convert("f.yaml", []byte(tt.source))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// A rule with errors is reported and does not affect the others.
func TestCustomRulesKeepsGoodRules(t *testing.T) {
	const source = `
- {name: good, labels: {a: b}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: [AVX]}]}
- {name: bad, matchOn: []}
- {name: old, value: 1, matchOn: [{kConfig: [KVM, KVM=y]}]}
- {name: typo, lables: {a: b}}
- {name: more, taints: [{key: a, effect: NoSchedule}], labels: {c: d}}
`
	rules, notes, err := CustomRules("worker.conf", []byte(source))
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{"good", "old", "more"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(rules) == 3 {
		if diff := cmp.Diff(map[string]string{"custom-old": "1"}, rules[1].Labels); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if len(rules[1].MatchFeatures) != 2 {
			t.Errorf("an option that is named twice has %d terms", len(rules[1].MatchFeatures))
		}
	}
	for _, want := range []string{"rule bad", "unknown field lables"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if !slices.ContainsFunc(notes, func(n Note) bool { return n.Lost && strings.Contains(n.Message, "taints are ignored") }) {
		t.Errorf("notes %v say nothing of the taints", notes)
	}
}

func TestLowerHex(t *testing.T) {
	roots, err := compose.ParseTrees("f", []byte(`[{name: x, matchFeatures: [{feature: PCI.device, matchExpressions: {vendor: {op: In, value: [0FFF, 8086]}, device: {op: InRegexp, value: [ABCD]}}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	notes := LowerHex(roots[0].Content[0])
	text := string(yamltree.JSON(roots[0]))
	if len(notes) != 1 || !strings.Contains(text, "0fff") || !strings.Contains(text, "ABCD") {
		t.Errorf("notes %v, result %s", notes, text)
	}
}

func FuzzConvert(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		source, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		for _, convert := range []func(string, []byte) ([]*yaml.Node, []Note, error){Ironic, Custom} {
			objects, _, err := convert("f", source)
			if err != nil {
				continue
			}
			for _, o := range objects { // every result can be written
				if _, err := yaml.Marshal(o); err != nil {
					t.Error(err)
				}
			}
		}
		_, _, _ = CustomRules("f", source)
	})
}

func render(t *testing.T, objects []*yaml.Node, notes []Note) string {
	t.Helper()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, o := range objects {
		if err := e.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range notes {
		lost := ""
		if n.Lost {
			lost = "lost: "
		}
		fmt.Fprintf(&b, "# %s%s\n", lost, n)
	}
	return b.String()
}
