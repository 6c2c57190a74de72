package template

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/facts"
)

// A rule that overrides one label of its base and excludes one rule must have the same result on a node when it is embedded and no
// template exists.
func TestEmbeddedPoolLabelsNode(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"site.yaml": `
kind: NodeFeatureRuleTemplate
spec:
  rules:
    - name: site
      vars: {site: "{host[0:3]}"}
      labels: {example.com/site: "{site}"}
    - name: legacy-kernel
      labels: {example.com/old-kernel: "true"}
      matchFeatures:
        - feature: kernel.version
          matchExpressions: {major: {op: Lt, value: ["6"]}}
    - name: "*"
      annotations: {example.com/owner: platform}
`,
		"pool.yaml": `
kind: NodeFeatureRule
spec:
  basedOn: [{file: site.yaml, exclude: ["legacy-*"]}]
  rules:
    - name: site
      labels: {example.com/site: "{site}-gpu"}
`}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	embedded, err := run(t, Deps{}, "", "copy", "--embed-all", filepath.Join(dir, "pool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := compose.ParseYAML("embedded", []byte(embedded))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := compose.Typed(doc.Spec)
	if err != nil {
		t.Fatal(err)
	}
	set, report := rules.CompileSpec("gpu-pool", spec, rules.Options{})
	if len(report.Errors) > 0 {
		t.Fatal(report.Errors.ToAggregate())
	}
	old := facts.New(&nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
		"kernel.version": {Elements: map[string]string{"major": "5"}},
	}}, nil)
	outcome := rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "ait-gpu-07"}, Facts: old})
	if diff := cmp.Diff(map[string]string{"example.com/site": "ait-gpu"}, outcome.Labels()); diff != "" {
		t.Errorf("labels: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"example.com/owner": "platform"}, outcome.Annotations()); diff != "" {
		t.Errorf("annotations: -want +got\n%s", diff)
	}
}

// When comments of a base are merged into a map in braces, the result must be valid for other parsers and keep the comments of
// both.
func TestEmbeddedCommentsSurviveInYAMLThatOthersRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"base.yaml": `kind: NodeFeatureRuleTemplate
spec:
  # c1
  rules:
  # c2
  - name: one # c3
    labels: {a: "1"} # c4
    # c5
  - name: two
    labels:
      b: "2" # c6
# c7
`,
		"main.yaml": `# c8
kind: NodeFeatureRule
spec:
  basedOn: [{file: base.yaml}]
  rules:
  - {name: one, annotations: {x: "y"}} # c9
  - name: three
    labels: {
      # c10
      c: "3", # c11
      d: "4" } # c12
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	embedded, err := run(t, Deps{}, "", "copy", "--embed-all", filepath.Join(dir, "main.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 12; i++ {
		if n := len(regexp.MustCompile(fmt.Sprintf(`# c%d\b`, i)).FindAllString(embedded, -1)); n != 1 {
			t.Errorf("comment c%d is there %d times", i, n)
		}
	}
	var got, want any
	if err := yaml.UnmarshalStrict([]byte(embedded), &got); err != nil { // a different parser than the one that wrote the text
		t.Fatalf("%v in\n%s", err, embedded)
	}
	if err := yaml.Unmarshal([]byte(`{kind: NodeFeatureRule, spec: {rules: [{name: one, annotations: {x: "y"}, labels: {a: "1"}},
		{name: two, labels: {b: "2"}}, {name: three, labels: {c: "3", d: "4"}}]}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s\n%s", diff, embedded)
	}
}

// Each of the two documents has comments above its first field and above rules; the copy has all of them, those of the base first.
func TestEmbeddedCommentsOfTheBaseJoinThoseOfTheDocument(t *testing.T) {
	for name, base := range map[string]string{
		"Object": "# head\napiVersion: assay.dev/v1alpha1\nkind: NodeFeatureRuleTemplate\nspec:\n  # list of the base\n  rules:\n  - {name: a, labels: {a: \"1\"}}\n",
		"Spec":   "# head\n# list of the base\nrules:\n- {name: a, labels: {a: \"1\"}}\n",
		"Marker": "# head\n---\n# list of the base\nrules:\n- {name: a, labels: {a: \"1\"}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			const own = "# own head\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nspec:\n  basedOn: [{file: base.yaml}]\n  # own list\n  rules:\n  - {name: b, labels: {b: \"1\"}}\n"
			for file, text := range map[string]string{"base.yaml": base, "main.yaml": own} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			embedded, err := run(t, Deps{}, "", "copy", "--embed-all", filepath.Join(dir, "main.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, comment := range []string{"# head\n", "# list of the base\n", "# own head\n", "# own list\n"} {
				if n := strings.Count(embedded, comment); n != 1 {
					t.Errorf("the comment %q is there %d times in\n%s", comment, n, embedded)
				}
			}
			if strings.Index(embedded, "# list of the base") > strings.Index(embedded, "# own list") {
				t.Errorf("the comments of the base are not the first in\n%s", embedded)
			}
		})
	}
}

func TestCopyFromTheClusterIsACompleteObject(t *testing.T) {
	deps := Deps{Template: func(_ context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
		t := &assayv1alpha1.NodeFeatureRuleTemplate{}
		t.Name, t.Spec.Rules = name, []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{"a": "1"}}}
		return t, nil
	}}
	got, err := run(t, deps, "", "copy", "cluster:site")
	if err != nil {
		t.Fatal(err)
	}
	object := &assayv1alpha1.NodeFeatureRuleTemplate{}
	if err := yaml.UnmarshalStrict([]byte(got), object); err != nil {
		t.Fatalf("%v in\n%s", err, got)
	}
	if object.APIVersion != assayv1alpha1.GroupVersion.String() || object.Kind != "NodeFeatureRuleTemplate" || object.Name != "site" || len(object.Spec.Rules) != 1 {
		t.Errorf("not the whole object:\n%s", got)
	}
}
