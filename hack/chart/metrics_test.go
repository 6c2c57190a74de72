package chart

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promql "github.com/prometheus/prometheus/promql/parser"
)

// TestQueriesReadRealMetrics parses each expression of the alerts and of the dashboard, and looks for each metric in it among
// those that the programs have.
func TestQueriesReadRealMetrics(t *testing.T) {
	have := metrics(t)
	queries := map[string]string{}
	for _, object := range objects(t, mustRender(t, set(t, `{prometheus: {rules: {enable: true}, dashboard: {enable: true}}}`))) {
		switch object["kind"] {
		case "PrometheusRule":
			var rule struct {
				Spec struct {
					Groups []struct {
						Rules []struct{ Alert, Expr string }
					}
				}
			}
			convert(t, object, &rule)
			for _, group := range rule.Spec.Groups {
				for _, r := range group.Rules {
					queries["alert "+r.Alert] = r.Expr
				}
			}
		case "ConfigMap":
			data, _ := object["data"].(map[string]any)
			text, ok := data["assay.json"].(string)
			if !ok {
				continue
			}
			var dashboard struct {
				Panels []struct {
					Title   string
					Targets []struct{ Expr, RefID string }
				}
			}
			if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
				t.Fatal(err)
			}
			for _, panel := range dashboard.Panels {
				for _, target := range panel.Targets {
					queries["panel "+panel.Title+" "+target.RefID] = target.Expr
				}
			}
		}
	}
	if len(queries) < 25 {
		t.Fatalf("there are only %d queries", len(queries))
	}
	for name, query := range queries {
		for _, metric := range read(t, name, query) {
			base := metric
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !have[metric] && !have[base] {
				t.Errorf("%s: no program has %s", name, metric)
			}
		}
	}
}

// read returns the metrics that a query selects.
func read(t *testing.T, name, query string) []string {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	var out []string
	for _, selector := range promql.ExtractSelectors(expr) {
		for _, matcher := range selector {
			if matcher.Name == labels.MetricName {
				out = append(out, matcher.Value)
			}
		}
	}
	if len(out) == 0 {
		t.Errorf("%s reads no metric", name)
	}
	return out
}

// standard are metrics of Prometheus' own library, by which the manager's registry describes its process.
var standard = []string{"process_resident_memory_bytes"}

// metrics returns the names of metrics in the text of the programs.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	word := regexp.MustCompile(`\b(nfd|assay)_[a-z0-9_]+\b`)
	have := map[string]bool{}
	for _, name := range standard {
		have[name] = true
	}
	for _, dir := range []string{"cmd", "controller", "webhook", "extender", "discovery", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(filepath.Clean(path))
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, _ := strconv.Unquote(literal.Value)
					for _, name := range word.FindAllString(text, -1) {
						have[name] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return have
}
