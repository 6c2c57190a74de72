package directory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
)

const good = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: policy}
spec:
  priority: 20000
  rules: [{name: owner, labels: {example.com/owner: platform}}]
`

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []string // names
		wrong []string // substrings of the problems
	}{
		"AnyPriority": {files: map[string]string{"a.yaml": good}, want: []string{"policy"}},
		"SeveralDocuments": {
			files: map[string]string{"a.yaml": good + "---" + strings.Replace(good, "policy", "other", 1)}, want: []string{"policy", "other"},
		},
		"PassesOverOtherFiles": {files: map[string]string{"a.yaml": good, ".hidden.yaml": "x", "README": "x"}, want: []string{"policy"}},
		"NamesFileAndPlace": {
			files: map[string]string{"a.yaml": strings.Replace(good, "labels: {", "labels: {bad key: x, ", 1), "b.yaml": "kind: ["},
			want:  []string{"policy"},
			wrong: []string{"b.yaml:1"},
		},
		"EachNameOnce": {files: map[string]string{"a.yaml": good, "b.yaml": good}, want: []string{"policy"}, wrong: []string{"b.yaml:2:1: the name policy is taken by a.yaml"}},
		"RulesOnly":    {files: map[string]string{"a.yaml": "{apiVersion: v1, kind: Secret}"}, wrong: []string{`a.yaml:1:1: there is a "Secret"`}},
		"NoReferences": {
			files: map[string]string{"a.yaml": strings.Replace(good, "priority: 20000", "basedOn: [{name: x}]", 1)},
			wrong: []string{"spec.basedOn: built-in rules refer to nothing else"},
		},
		"UnknownFields": {files: map[string]string{"a.yaml": strings.Replace(good, "priority", "prioritty", 1)}, wrong: []string{"prioritty"}},
		"HidesSensitiveText": {
			files: map[string]string{"a.yaml": strings.NewReplacer("priority: 20000", "sensitive: true",
				"labels: {example.com/owner: platform}", `conditions: [{op: matches, args: {value: x, regex: "[hunter2"}}]`).Replace(good)},
			want:  []string{"policy"},
			wrong: []string{"a.yaml:7:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, test.files)
			set, _ := New(dir, assembly.NewRegistry(rules.Options{})).State()
			var names []string
			for _, o := range set.Objects {
				names = append(names, o.Rule.Name)
			}
			if diff := cmp.Diff(test.want, names); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if len(set.Problems) != len(test.wrong) {
				t.Fatalf("problems: %q", set.Problems)
			}
			for i, want := range test.wrong {
				if !strings.Contains(set.Problems[i], want) || strings.Contains(set.Problems[i], "hunter2") {
					t.Errorf("problem is %q, want %q in it", set.Problems[i], want)
				}
			}
		})
	}
}

func TestLastGoodRulesStay(t *testing.T) {
	dir := t.TempDir()
	reg := assembly.NewRegistry(rules.Options{})
	l := &Directory{path: dir, registry: reg, valid: prometheus.NewGauge(prometheus.GaugeOpts{}), changed: make(chan struct{}, 1)}
	inForce := func() (names []string) {
		for _, o := range reg.All() {
			names = append(names, o.Set.Name)
		}
		return names
	}
	step := func(what string, files map[string]string, want []string, problems int) {
		t.Helper()
		write(t, dir, files)
		l.load(logr.Discard())
		if diff := cmp.Diff(want, inForce()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if latest, _ := l.State(); len(latest.Problems) != problems {
			t.Errorf("%s: problems are %q", what, latest.Problems)
		}
	}
	step("empty directory", nil, nil, 0)
	step("first rules", map[string]string{"a.yaml": good}, []string{"builtin:policy"}, 0)
	step("a broken file beside them", map[string]string{"b.yaml": "kind: ["}, []string{"builtin:policy"}, 1)
	step("broken itself", map[string]string{"a.yaml": "kind: ["}, []string{"builtin:policy"}, 2)
	step("repaired", map[string]string{"a.yaml": strings.Replace(good, "policy", "next", 1), "b.yaml": ""}, []string{"builtin:next"}, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	step("directory gone", nil, []string{"builtin:next"}, 1)
}

// TestAnObjectIsLostOnlyWithoutErrors: a process that starts with a directory with errors does not know which objects the administrator has
// removed.
func TestAnObjectIsLostOnlyWithoutErrors(t *testing.T) {
	for name, test := range map[string]struct {
		files   map[string]string
		unknown bool
	}{
		"Removed":       {map[string]string{"a.yaml": strings.Replace(good, "policy", "other", 1)}, false},
		"Active":        {map[string]string{"a.yaml": good, "b.yaml": "kind: ["}, false},
		"InBrokenFile":  {map[string]string{"a.yaml": "kind: ["}, true},
		"BesideABroken": {map[string]string{"a.yaml": strings.Replace(good, "policy", "other", 1), "b.yaml": "kind: ["}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, test.files)
			o := New(dir, assembly.NewRegistry(rules.Options{})).Lost(Prefix + "policy")
			if unknown := o != nil && string(o.UID) == Prefix+"policy" && !o.Settled(); unknown != test.unknown {
				t.Errorf("it is unknown whether the object is gone: %t, want %t", unknown, test.unknown)
			}
		})
	}
}
