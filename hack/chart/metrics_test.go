package chart

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promql "github.com/prometheus/prometheus/promql/parser"
)

// query is an expression of an alert or of a panel, with the text that shows its result.
type query struct{ expr, text string }

// TestQueriesReadRealMetrics parses each expression in the alerts and the dashboard. The programs must have each metric, and the
// metric must have each label that the expression selects, groups or matches by, or that its text shows.
func TestQueriesReadRealMetrics(t *testing.T) {
	have := metrics(t)
	queries := map[string]query{}
	for _, object := range objects(t, mustRender(t, set(t, `{prometheus: {rules: {enable: true}, dashboard: {enable: true}}}`))) {
		switch object["kind"] {
		case "PrometheusRule":
			var rule struct {
				Spec struct {
					Groups []struct {
						Rules []struct {
							Alert, Expr string
							Annotations map[string]string
						}
					}
				}
			}
			convert(t, object, &rule)
			for _, group := range rule.Spec.Groups {
				for _, r := range group.Rules {
					queries["alert "+r.Alert] = query{r.Expr, strings.Join(slices.Collect(maps.Values(r.Annotations)), "\n")}
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
					Targets []struct{ Expr, LegendFormat, RefID string }
				}
			}
			if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
				t.Fatal(err)
			}
			for _, panel := range dashboard.Panels {
				for _, target := range panel.Targets {
					queries["panel "+panel.Title+" "+target.RefID] = query{target.Expr, target.LegendFormat}
				}
			}
		}
	}
	if len(queries) < 25 {
		t.Fatalf("there are only %d queries", len(queries))
	}
	for name, q := range queries {
		expr, err := promql.ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, fault := range faults(expr, q.text, have) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// TestWrongQueriesAreFound checks that the test above detects errors.
func TestWrongQueriesAreFound(t *testing.T) {
	have := metrics(t)
	for query, want := range map[string]string{
		`sum by (verdict) (rate(assay_webhook_reviews_total[5m]))`:                            "",
		`sum by (result) (rate(assay_webhook_reviews_total[5m]))`:                             "no metric in it has the label result",
		`assay_webhook_reviews_total{code="200"}`:                                             "assay_webhook_reviews_total has no label code",
		`assay_extender_nodes * on (verb) assay_webhook_review_duration_seconds_sum`:          "no metric in it has the label verb",
		`histogram_quantile(0.9, sum by (le) (assay_webhook_review_duration_seconds_bucket))`: "",
		`sum without (verb) (assay_extender_request_duration_seconds_count)`:                  "",
		`assay_nothing`: "no program has assay_nothing",
		`vector(1)`:     "it reads no metric",
	} {
		expr, err := promql.ParseExpr(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(faults(expr, "", have), "; "); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	expr, err := promql.ParseExpr(`sum by (verdict) (assay_webhook_reviews_total)`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(faults(expr, "{{verdict}} {{ $labels.resource }} {{ $value }}", have), "; "); got != "its text shows the label resource, which the result does not have" {
		t.Errorf("got %q", got)
	}
}

// shown matches the labels in a string: {{label}} in a legend, $labels.label in an annotation.
var shown = regexp.MustCompile(`\{\{(\w+)\}\}|\$labels\.(\w+)`)

// faults returns the errors of a query, and of the text that shows its result.
func faults(expr promql.Expr, text string, have map[string][]string) (out []string) {
	known := map[string]bool{} // the labels of all metrics in it
	for _, selector := range promql.ExtractSelectors(expr) {
		metric := ""
		for _, matcher := range selector {
			if matcher.Name == labels.MetricName {
				metric = matcher.Value
			}
		}
		names, ok := labelsOf(metric, have)
		if !ok {
			out = append(out, "no program has "+metric)
			continue
		}
		for _, name := range names {
			known[name] = true
		}
		for _, matcher := range selector {
			if matcher.Name != labels.MetricName && !slices.Contains(names, matcher.Name) {
				out = append(out, fmt.Sprintf("%s has no label %s", metric, matcher.Name))
			}
		}
	}
	if len(known) == 0 && len(out) == 0 {
		return []string{"it reads no metric"}
	}
	if len(out) > 0 {
		return out
	}
	promql.Inspect(expr, func(node promql.Node, _ []promql.Node) error {
		var by []string
		switch n := node.(type) {
		case *promql.AggregateExpr:
			by = n.Grouping
		case *promql.BinaryExpr:
			if n.VectorMatching != nil {
				by = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, name := range by {
			if !known[name] {
				out = append(out, "no metric in it has the label "+name)
			}
		}
		return nil
	})
	for _, match := range shown.FindAllStringSubmatch(text, -1) {
		if name := match[1] + match[2]; !known[name] || dropped(expr, name) {
			out = append(out, fmt.Sprintf("its text shows the label %s, which the result does not have", name))
		}
	}
	return out
}

// dropped reports whether an aggregation at the top of a query drops a label.
func dropped(expr promql.Expr, name string) bool {
	switch e := expr.(type) {
	case *promql.AggregateExpr:
		return slices.Contains(e.Grouping, name) == e.Without
	case *promql.BinaryExpr:
		return dropped(e.LHS, name)
	case *promql.ParenExpr:
		return dropped(e.Expr, name)
	case *promql.Call:
		return len(e.Args) > 0 && dropped(e.Args[len(e.Args)-1], name)
	}
	return false
}

// scraped are the labels that Prometheus adds when it scrapes a PodMonitor or ServiceMonitor.
var scraped = []string{"namespace", "pod", "container", "job", "instance"}

// labelsOf returns the labels of a series of a metric.
func labelsOf(series string, have map[string][]string) (names []string, ok bool) {
	names, ok = have[series]
	if !ok {
		base, isBucket := strings.CutSuffix(series, "_bucket")
		base = strings.TrimSuffix(strings.TrimSuffix(base, "_count"), "_sum")
		if names, ok = have[base]; ok && isBucket {
			names = append(slices.Clone(names), "le")
		}
	}
	return append(slices.Clone(names), scraped...), ok
}

// foreign are metrics of other projects, with their labels: process metrics of Prometheus' client library, and those of the API
// server (staging/src/k8s.io/apiserver/pkg/admission/metrics).
var foreign = map[string][]string{
	"process_resident_memory_bytes":               nil,
	"apiserver_admission_webhook_fail_open_count": {"name", "type"},
	"apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
}

var (
	metricName = regexp.MustCompile(`\b(?:nfd|assay)_[a-z0-9_]+\b`)
	// written matches a metric that a program writes as text, with its first label: the worker has no metrics library.
	written = regexp.MustCompile(`^((?:nfd|assay)_[a-z0-9_]+)\{(\w+)=`)
)

// metrics returns the metrics in the source code of the programs, with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	have := maps.Clone(foreign)
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
				switch n := node.(type) {
				case *ast.BasicLit:
					for _, name := range metricName.FindAllString(text(n), -1) {
						have[name] = have[name] // without labels in this literal
					}
					if m := written.FindStringSubmatch(text(n)); m != nil {
						have[m[1]] = append(have[m[1]], m[2])
					}
				case *ast.CallExpr:
					if name, names := declared(n); name != "" {
						have[name] = names
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

// text returns the value of a string literal, or an empty string.
func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
		value, _ := strconv.Unquote(literal.Value)
		return value
	}
	return ""
}

// declared returns the metric that a call declares, with its labels: prometheus.NewCounterVec(Opts{Name: …}, []string{…}) and
// similar, or prometheus.NewDesc(name, help, []string{…}, nil).
func declared(call *ast.CallExpr) (name string, names []string) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 2 {
		return "", nil
	}
	list := call.Args[1]
	switch {
	case function.Sel.Name == "NewDesc" && len(call.Args) > 2:
		name, list = text(call.Args[0]), call.Args[2]
	case strings.HasPrefix(function.Sel.Name, "New") && strings.HasSuffix(function.Sel.Name, "Vec"):
		options, ok := call.Args[0].(*ast.CompositeLit)
		if !ok {
			return "", nil
		}
		for _, element := range options.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == "Name" {
				name = text(pair.Value)
			}
		}
	}
	if literal, ok := list.(*ast.CompositeLit); ok {
		for _, element := range literal.Elts {
			names = append(names, text(element))
		}
	}
	return name, names
}
