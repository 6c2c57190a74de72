package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/schemacheck"
)

// additions contains an example for each row of the table "To change X, open Y" in ARCHITECTURE.md. Each is inserted after a line;
// no other change must be necessary. The names are hostile: an operator that contains an s, a source that begins like another one,
// attributes that are called like fields of a matcher, a setting that is a part of another one's name.
var additions = []struct{ file, behind, insert string }{
	{
		"rules/lang/match/operator.go", "var operators = []operator{\n",
		`{op: "StartsWith", kind: onValue, says: "row says operator", min: 1, max: 1, compile: compileIn}, {op: "IsUnset", kind: absent, says: "row says absent"},`,
	},
	{
		"rules/lang/condition/operators.go", "var operatorList = []*operator{\n",
		`{name: "is-row", says: "row says condition", params: valueParams, eval: unary(func(v expr.Value) bool { return !isNone(v) })},`,
	},
	{
		"rules/lang/action/kinds.go", "var kindList = []*kind{\n",
		`{name: "row-log", says: "row says action", params: []args.Param{message, level}, run: log},`,
	},
	{
		"rules/lang/expr/funcs.go", "var functionList = []*function{\n",
		`{name: "row", usage: "node.row()", says: "row says function", kind: String, run: upper},`,
	},
	{
		"rules/lang/tmpl/funcs_string.go", "var stringFunctions = []function{\n",
		`{"row", 1, 1, -1, func(c *call) value { return text(strings.ToUpper(c.str(0))) }},`,
	},
	{"rules/keys/protected.go", "var protectedNamespaces = []ProtectedNamespace{\n", `{"row.kubernetes.io", true, "row says protected"},`},
	{"discovery/builtin/builtin.go", "return []discovery.Source{\n", `row.New(),`},
	{
		"rules/dictionary/devices.go", "var deviceFeatures = []Feature{\n",
		`{Name: "cpus.device", Type: Instances, Elements: []Element{{Name: "op"}, {Name: "value"}}},`,
	},
	{"settings/list.go", "type Settings struct {\n", `DisableLabel []string`},
	{
		"settings/list.go", "var list = []Setting{\n",
		`declare("restrictions.disableLabel", func(s *Settings) *[]string { return &s.DisableLabel }, nil, "Row says setting.", flag("disable-label"), inAssay),`,
	},
	{"discovery/builtin/builtin.go", "import (\n", `"` + Module + `/discovery/row"`},
}

// TestRowsOfTheTable makes all additions in an overlay of the source tree. A rule that uses all of them must compile and take
// effect, and the CRDs, the schema for editors and the reference must contain them.
func TestRowsOfTheTable(t *testing.T) {
	readTree(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := writeOverlay(t, root, dir)
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	run(t, root, "go", "build", "-overlay", overlay, "-o", bin, "./hack/crds", "./hack/reference", "./charts/generate", "./internal/arch/probe")

	got := strings.Split(strings.TrimSpace(run(t, root, filepath.Join(bin, "probe"))), "\n")
	slices.Sort(got)
	want := []string{
		"function row", "label feature.node.kubernetes.io/expression=N", "label feature.node.kubernetes.io/template=TEXT", "message added",
		"protected: row says protected", "schema IsUnset", "schema StartsWith", "schema is-row", "schema row-log",
		"setting from file", "setting of --disable-label: row says setting, separated by commas", "setting restrictions.disableLabel: Row says setting.",
		"source cpus can be configured",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a rule that uses the additions does (-want +got):\n%s", diff)
	}

	reference := filepath.Join(dir, "reference.md")
	run(t, root, filepath.Join(bin, "reference"), reference)
	crd := filepath.Join(dir, "crd.yaml")
	copyFile(t, filepath.Join(root, "charts", "assay", "crds", "nfd.k8s-sigs.io_nodefeaturerules.yaml"), crd)
	run(t, root, filepath.Join(bin, "crds"), crd)
	contains(t, reference, "row says operator", "row says condition", "row says action", "row says function", "`row`")
	acceptsTheRows(t, crd)
	chart := generateChart(t, root, filepath.Join(bin, "generate"))
	contains(t, filepath.Join(chart, "charts", "assay", "values.schema.json"), "Row says setting.")
	contains(t, filepath.Join(chart, "docs", "values.md"), "| `controller.config.restrictions.disableLabel` | `[]` | Row says setting. |")
}

// acceptsTheRows validates rules that use the added operators and attributes with a generated CRD, by the code of the API server.
func acceptsTheRows(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := schemacheck.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for matcher, want := range map[string]string{
		`{op: {op: StartsWith, value: [a]}, value: {op: IsUnset}}`: "",
		`{op: {op: StartsWith}}`:                                   "StartsWith takes exactly one value",
		`{op: {op: StartsWith, value: [a, b]}}`:                    "StartsWith takes exactly one value",
		`{value: {op: IsUnset, value: [a]}}`:                       "IsUnset takes no value",
		`{value: {op: StartWith, value: [a]}}`:                     "Unsupported value",
	} {
		object := map[string]any{}
		text := "{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: rows}, spec: {rules: [{name: a, labels: {a: b}, " +
			"matchFeatures: [{feature: cpus.device, matchExpressions: " + matcher + "}]}]}}"
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if got := kind.Create(object).ToAggregate(); (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: the CRD reports %v, want %q", matcher, got, want)
		}
	}
}

// generateChart generates the parts of the chart that follow from declarations in a directory of its own, and returns it.
func generateChart(t *testing.T, root, program string) string {
	t.Helper()
	dir := t.TempDir()
	for _, below := range []string{"docs", filepath.Join("charts", "assay", "files")} {
		if err := os.MkdirAll(filepath.Join(dir, below), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	values := filepath.Join("charts", "assay", "values.yaml")
	copyFile(t, filepath.Join(root, values), filepath.Join(dir, values))
	run(t, dir, program)
	return dir
}

// writeOverlay writes the changed files and the overlay file of the go command, and returns the name of the overlay file.
func writeOverlay(t *testing.T, root, dir string) string {
	t.Helper()
	replace := map[string]string{
		filepath.Join(root, "internal", "arch", "probe", "main.go"): filepath.Join(root, "internal", "arch", "testdata", "rows", "probe", "main.go"),
		filepath.Join(root, "discovery", "row", "row.go"):           filepath.Join(root, "internal", "arch", "testdata", "rows", "row", "row.go"),
	}
	for i, a := range additions {
		file := filepath.Join(root, filepath.FromSlash(a.file))
		from := file
		if changed, ok := replace[file]; ok {
			from = changed
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), a.behind) != 1 {
			t.Fatalf("%s: no single line %q; the table names the place where a list begins", a.file, a.behind)
		}
		to := filepath.Join(dir, string(rune('a'+i))+".go")
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), a.behind, a.behind+a.insert+"\n", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, file string, texts ...string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if !strings.Contains(string(data), text) {
			t.Errorf("%s does not contain %q", filepath.Base(file), text)
		}
	}
}
