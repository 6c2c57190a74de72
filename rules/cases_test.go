package rules_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/suite"
)

var update = flag.Bool("update", false, "write what comes out as what is expected; read the diff")

// settings is the content of options.yaml of a case; all fields are optional.
type settings struct {
	Strict       bool              `json:"strict,omitempty"`
	DefaultScope string            `json:"defaultScope,omitempty"`
	NodeScope    string            `json:"nodeScope,omitempty"`
	Mask         string            `json:"mask,omitempty"`
	IgnoreFail   bool              `json:"ignoreFail,omitempty"`
	Sources      string            `json:"featureSources,omitempty"`
	Node         string            `json:"node,omitempty"`
	NodeLabels   map[string]string `json:"nodeLabels,omitempty"`
}

// TestCases runs each directory of testdata/cases: the rules of rule.yaml evaluated on the facts of facts.yaml must give
// outcome.yaml. facts.yaml may contain several NodeFeatures, which are merged in the order of their names. The errors and warnings
// of Compile are in report.txt.
func TestCases(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "cases", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no cases", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c := readCase(t, dir)
			got, report := c.run(t)
			c.compare(t, "report.txt", []byte(report))
			data, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			c.compare(t, "outcome.yaml", data)
		})
	}
}

type testCase struct {
	dir      string
	objects  []nfdv1alpha1.NodeFeatureRule
	features []nfdv1alpha1.NodeFeature
	settings settings
}

func readCase(t *testing.T, dir string) *testCase {
	t.Helper()
	c := &testCase{dir: dir}
	for _, doc := range documents(t, filepath.Join(dir, "rule.yaml")) {
		var obj nfdv1alpha1.NodeFeatureRule
		if err := yaml.UnmarshalStrict(doc, &obj); err != nil {
			t.Fatalf("rule.yaml: %v", err)
		}
		c.objects = append(c.objects, obj)
	}
	for _, doc := range documents(t, filepath.Join(dir, "facts.yaml")) {
		var obj nfdv1alpha1.NodeFeature
		if err := yaml.UnmarshalStrict(doc, &obj); err != nil {
			t.Fatalf("facts.yaml: %v", err)
		}
		c.features = append(c.features, obj)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "options.yaml")); err == nil {
		if err := yaml.UnmarshalStrict(data, &c.settings); err != nil {
			t.Fatalf("options.yaml: %v", err)
		}
	}
	return c
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) > 0 {
			out = append(out, doc)
		}
	}
	return out
}

func (c *testCase) run(t *testing.T) (*suite.Expectation, string) {
	opt := rules.Options{
		Strict: c.settings.Strict, DefaultScope: c.settings.DefaultScope, DefaultNodeScope: c.settings.NodeScope,
		IgnoreFail: c.settings.IgnoreFail, Mask: rules.Masking{Mode: rules.MaskMode(c.settings.Mask)},
	}
	opt.Keys.Strict = opt.Strict
	if c.settings.Sources != "" {
		opt.FeatureSources = regexp.MustCompile(c.settings.Sources)
	}
	var report strings.Builder
	var sets []*rules.RuleSet
	for i := range c.objects {
		set, r := rules.Compile(&c.objects[i], opt)
		sets = append(sets, set)
		for _, err := range r.Errors {
			report.WriteString("error: " + err.Error() + "\n")
		}
		for _, w := range r.Warnings {
			kind := "warning: "
			if w.Defect {
				kind = "defect: "
			}
			report.WriteString(kind + w.String() + "\n")
		}
	}
	var published []gather.Published
	for i := range c.features {
		nf := &c.features[i]
		published = append(published, gather.Published{
			Namespace: nf.Namespace, Name: nf.Name, Labels: nf.Spec.Labels, Facts: facts.New(&nf.Spec.Features, nil),
		})
	}
	node := gather.Node{Name: cmp.Or(c.settings.Node, "node-1"), Labels: c.settings.NodeLabels}
	selected, _ := gather.Select(gather.Policy{Keys: opt.Keys}, node, nil, published)
	in := selected.Input(node, nil)
	program := rules.Link(opt, sets...)
	outcome := program.Eval(in)

	for i, trace := range program.Trace(in) {
		if want := outcome.Rules()[i]; trace.Matched != want.Matched {
			t.Errorf("trace of %s: matched %v, want %v", trace.Ref, trace.Matched, want.Matched)
		} else if !trace.Matched && trace.Err == nil && trace.Skipped == "" && trace.Why == "" {
			t.Errorf("trace of %s does not say why it does not match", trace.Ref)
		}
	}
	return suite.Expect(outcome), report.String()
}

// compare compares got with a file of the case. The file must not exist if got is empty.
func (c *testCase) compare(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join(c.dir, name)
	empty := len(bytes.TrimSpace(got)) == 0
	if *update {
		if empty {
			_ = os.Remove(file)
		} else if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil && !(empty && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" && !empty || empty && len(want) > 0 {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
