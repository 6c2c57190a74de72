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
)

// additions contains an example for each row of the table "To change X, open Y" in ARCHITECTURE.md. Each is inserted after a line;
// no other change must be necessary.
var additions = []struct{ file, behind, insert string }{
	{
		"rules/lang/match/operator.go", "var operators = []operator{\n",
		`{op: "RowIn", kind: onValue, says: "row says operator", min: 1, max: 1, compile: compileIn},`,
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
	{"rules/keys/protected.go", "	why       string\n}{\n", `{"row.kubernetes.io", true, "row says protected"},`},
	{"discovery/builtin/builtin.go", "return []discovery.Source{\n", `row.New(),`},
	{"settings/list.go", "type Settings struct {\n", `Row []string`},
	{
		"settings/list.go", "var list = []Setting{\n",
		`declare("restrictions.row", func(s *Settings) *[]string { return &s.Row }, nil, "Row says setting.", flag("row-setting"), inAssay),`,
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
		"protected: row says protected", "schema RowIn", "schema is-row", "schema row-log",
		"setting from file", "setting of --row-setting: row says setting, separated by commas", "setting restrictions.row: Row says setting.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what a rule that uses the additions does (-want +got):\n%s", diff)
	}

	reference := filepath.Join(dir, "reference.md")
	run(t, root, filepath.Join(bin, "reference"), reference)
	crd := filepath.Join(dir, "crd.yaml")
	copyFile(t, filepath.Join(root, "charts", "assay", "files", "crds", "nfd.k8s-sigs.io_nodefeaturerules.yaml"), crd)
	run(t, root, filepath.Join(bin, "crds"), crd)
	contains(t, reference, "row says operator", "row says condition", "row says action", "row says function", "`row`")
	contains(t, crd, "- RowIn\n")
	chart := generateChart(t, root, filepath.Join(bin, "generate"))
	contains(t, filepath.Join(chart, "charts", "assay", "values.schema.json"), "Row says setting.")
	contains(t, filepath.Join(chart, "docs", "values.md"), "| `controller.config.restrictions.row` | `[]` | Row says setting. |")
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
