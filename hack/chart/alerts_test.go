package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	promql "github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// alert is an alert of the chart.
type alert struct {
	Alert, Expr, For string
	Annotations      map[string]string
}

// states are the series of Prometheus in the state that an alert names, and in similar ones that need no action. Each line is a series in
// the notation of promtool's unit tests, with a value per minute: first value, change per minute, number of minutes.
var states = map[string]struct{ fires, silent []string }{
	"AssayInconsistentFacts":   {[]string{`assay_inconsistent_facts_total 0+1x120`}, []string{`assay_inconsistent_facts_total 1+0x120`}},
	"AssayRemovalsHeld":        {[]string{`assay_removals_held_total 0+1x120`}, []string{`assay_removals_held_total 5+0x120`}},
	"AssayAdditionsHeld":       {[]string{`assay_additions_waiting_nodes 3+0x120`}, []string{`assay_additions_waiting_nodes 0+0x120`}},
	"AssayStartupTaintTimeout": {[]string{`assay_startup_taint_timeouts_total 0+1x120`}, []string{`assay_startup_taint_timeouts_total 3+0x120`}},
	"AssayNodeUpdatesFail":     {[]string{`nfd_master_node_update_failures_total 0+1x120`}, []string{`nfd_master_node_update_failures_total 9+0x120`}},
	"AssayNodesFailed":         {[]string{`assay_nodes_failed 2+0x120`}, []string{`assay_nodes_failed 0+0x120`}},
	"AssayNodesFlapping": { // a key that keeps changing is held for a minute, then written, and held again
		[]string{`assay_nodes_flapping 2+0x120`, `assay_nodes_flapping 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0 0 3 0`},
		[]string{`assay_nodes_flapping 0+0x120`, `assay_nodes_flapping 3 0+0x120`},
	},
	"AssayWorkerSuppresses":     {[]string{`assay_worker_suppressed_elements{pod="w"} 1+0x120`}, []string{`assay_worker_suppressed_elements{pod="w"} 0+0x120`}},
	"AssayWorkerDoesNotPublish": {[]string{`assay_worker_publish_failures_total{pod="w"} 0+1x120`}, []string{`assay_worker_publish_failures_total{pod="w"} 9+0x120`}},
	"AssayTopologyDoesNotPublish": {
		[]string{`assay_topology_publish_failures_total{pod="t"} 0+1x120`}, []string{`assay_topology_publish_failures_total{pod="t"} 9+0x120`},
	},
	"AssayTopologyWithoutKubelet": {[]string{`assay_topology_kubelet_up{pod="t"} 0+0x120`}, []string{`assay_topology_kubelet_up{pod="t"} 1+0x120`}},
	"AssayFeaturesLeftOut":        {[]string{`assay_worker_dropped_features{pod="w"} 3+0x120`}, []string{`assay_worker_dropped_features{pod="w"} 0+0x120`}},
	"AssayCertificateExpires":     {[]string{`assay_certificate_expiration_timestamp_seconds{pod="c"} 100000+0x120`}, []string{`assay_certificate_expiration_timestamp_seconds{pod="c"} 1000000+0x120`, `assay_certificate_expiration_timestamp_seconds{pod="c"} 0+0x120`}},
	"AssayDefinitionNotWhole": {
		[]string{`assay_definition_state{definition="d",state="foreign"} 1+0x120`}, []string{`assay_definition_state{definition="d",state="whole"} 1+0x120`},
	},
	"AssayBuiltInRulesWrong": {[]string{`assay_builtin_rules_valid 0+0x120`}, []string{`assay_builtin_rules_valid 1+0x120`}},
	"AssayConfigurationInvalid": {
		[]string{`assay_configuration_valid{pod="w"} 0+0x120`}, []string{`assay_configuration_valid{pod="w"} 1+0x120`},
	},
	"AssayRulesRejected": {
		[]string{"assay_rules{condition=\"Accepted\",status=\"False\"} 1+0x120\nassay_rules{condition=\"Accepted\",status=\"True\"} 9+0x120"},
		[]string{"assay_rules{condition=\"Accepted\",status=\"False\"} 0+0x120\nassay_rules{condition=\"Resolved\",status=\"False\"} 1+0x120"},
	},
	"AssayRulesUnresolved": {
		[]string{`assay_rules{condition="Resolved",status="False"} 1+0x120`},
		[]string{"assay_rules{condition=\"Resolved\",status=\"False\"} 0+0x120\nassay_rules{condition=\"Accepted\",status=\"False\"} 1+0x120"},
	},
	"AssayNodesNotReady": {
		[]string{"assay_nodes{features_ready=\"False\"} 2+0x120\nassay_nodes{features_ready=\"True\"} 9+0x120"},
		[]string{"assay_nodes{features_ready=\"False\"} 0+0x120\nassay_nodes{features_ready=\"None\"} 9+0x120"},
	},
	"AssayControllerAbsent": {
		[]string{`nfd_master_build_info{namespace="NAMESPACE"} 1+0x120`, `assay_build_info{namespace="NAMESPACE",component="webhook"} 1+0x120`},
		[]string{`assay_build_info{namespace="NAMESPACE",component="controller"} 1+0x120`},
	},
	"AssayNodesWithoutWorker": {
		[]string{"assay_published_nodes 3+0x120\nassay_build_info{component=\"worker\",pod=\"a\"} 1+0x120\nassay_build_info{component=\"worker\",pod=\"b\"} 1+0x120", `assay_published_nodes 3+0x120`},
		[]string{"assay_published_nodes 2+0x120\nassay_build_info{component=\"worker\",pod=\"a\"} 1+0x120\nassay_build_info{component=\"worker\",pod=\"b\"} 1+0x120", `assay_published_nodes 0+0x120`},
	},
	"AssayWebhookAbsent": {
		[]string{`assay_build_info{namespace="NAMESPACE",component="controller"} 1+0x120`, `assay_build_info{namespace="x",component="webhook"} 1+0x120`},
		[]string{`assay_build_info{namespace="NAMESPACE",component="webhook"} 1+0x120`},
	},
	"AssayWebhookDoesNotAnswer": {
		[]string{`apiserver_admission_webhook_fail_open_count{name="rules.assay.dev"} 0+1x120`,
			`apiserver_admission_webhook_rejection_count{name="rules.assay.dev",error_type="calling_webhook_error"} 0+1x120`},
		[]string{`apiserver_admission_webhook_fail_open_count{name="webhook.example.com"} 0+1x120`,
			`apiserver_admission_webhook_rejection_count{name="rules.assay.dev",error_type="no_error"} 0+1x120`},
	},
	"AssayNodesDeviate": {
		[]string{`assay_baseline_nodes{baseline="b",state="deviating"} 1+0x120`},
		[]string{"assay_baseline_nodes{baseline=\"b\",state=\"deviating\"} 0+0x120\nassay_baseline_nodes{baseline=\"b\",state=\"unknown\"} 3+0x120"},
	},
	"AssayExtenderDoesNotKnow": {[]string{`assay_extender_synced{pod="e"} 0+0x120`}, []string{`assay_extender_synced{pod="e"} 1+0x120`}},
	"AssayExtenderFails": {
		[]string{"assay_extender_request_duration_seconds_count{result=\"ok\"} 0+97x120\nassay_extender_request_duration_seconds_count{result=\"failed\"} 0+3x120"},
		[]string{"assay_extender_request_duration_seconds_count{result=\"ok\"} 0+999x120\nassay_extender_request_duration_seconds_count{result=\"failed\"} 0+1x120"},
	},
	"AssayExtenderRefuses": {[]string{`assay_extender_refused_total 0+1x120`}, []string{`assay_extender_refused_total 9+0x120`}},
}

// chartAlerts returns the alerts of the chart by name.
func chartAlerts(t *testing.T) map[string]alert {
	t.Helper()
	alerts := map[string]alert{}
	for _, object := range objects(t, mustRender(t, set(t, `{prometheus: {rules: {enable: true}}}`))) {
		if object["kind"] != "PrometheusRule" {
			continue
		}
		var rule struct {
			Spec struct {
				Groups []struct{ Rules []alert }
			}
		}
		convert(t, object, &rule)
		for _, group := range rule.Spec.Groups {
			for _, a := range group.Rules {
				alerts[a.Alert] = a
			}
		}
	}
	if len(alerts) < 15 {
		t.Fatalf("there are only %d alerts", len(alerts))
	}
	return alerts
}

// TestAlertsFireForTheStatesThatTheyName evaluates each alert of the chart with Prometheus.
func TestAlertsFireForTheStatesThatTheyName(t *testing.T) {
	alerts := chartAlerts(t)
	for name := range states {
		if _, ok := alerts[name]; !ok {
			t.Errorf("%s is not in the chart", name)
		}
	}
	for name, a := range alerts {
		t.Run(name, func(t *testing.T) {
			if len(states[name].fires) == 0 || len(states[name].silent) == 0 {
				t.Fatal("add a state in which it fires, and one in which it does not")
			}
			for _, series := range states[name].fires {
				if !a.fires(t, series) {
					t.Errorf("it does not fire for\n%s", series)
				}
			}
			for _, series := range states[name].silent {
				if a.fires(t, series) {
					t.Errorf("it fires for\n%s", series)
				}
			}
		})
	}
}

// TestRunbooksExist follows the runbook_url of each alert to a section of the documentation with the alert's name, which quotes its expression.
func TestRunbooksExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, alertsOnPage, _ := strings.Cut(string(page), "\n## Alerts\n")
	alertsOnPage, _, _ = strings.Cut(alertsOnPage, "\n## ")
	sections := map[string]string{}
	for _, section := range strings.Split(alertsOnPage, "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for name, a := range chartAlerts(t) {
		file, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(file, "/docs/troubleshooting.md") || anchor != strings.ToLower(name) {
			t.Errorf("%s has the runbook %q", name, a.Annotations["runbook_url"])
		}
		text, ok := sections[name]
		if !ok {
			t.Errorf("docs/troubleshooting.md has no section %q", name)
			continue
		}
		fires := "`" + strings.ReplaceAll(a.Expr, `namespace="assay-system",`, "") + "`"
		if a.For != "" {
			fires += " for " + a.For
		}
		if !strings.Contains(text, "Fires if "+fires+".") {
			t.Errorf("the section %s does not say: Fires if %s.", name, fires)
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("docs/troubleshooting.md has a section about the alert %s, which the chart does not have", name)
	}
}

// ownNamespace is the namespace in an expression.
var ownNamespace = regexp.MustCompile(`namespace="([^"]+)"`)

// fires reports whether the expression of an alert holds as long as the alert requires, until the end of the series.
func (a alert) fires(t *testing.T, text string) bool {
	t.Helper()
	if m := ownNamespace.FindStringSubmatch(a.Expr); m != nil {
		text = strings.ReplaceAll(text, "NAMESPACE", m[1])
	}
	const step = time.Minute
	end, pending := time.UnixMilli(0), time.Duration(0)
	var all memory
	for line := range strings.Lines(text) {
		set, values, err := promql.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		series := engine.Series{Metric: set}
		for i, v := range values {
			end = time.UnixMilli(step.Milliseconds() * int64(i))
			series.Floats = append(series.Floats, engine.FPoint{T: end.UnixMilli(), F: v.Value})
		}
		all = append(all, engine.NewStorageSeries(series))
	}
	if a.For != "" {
		var err error
		if pending, err = time.ParseDuration(a.For); err != nil {
			t.Fatal(err)
		}
	}
	e := engine.NewEngine(engine.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Hour})
	q, err := e.NewRangeQuery(t.Context(), all, engine.NewPrometheusQueryOpts(false, 0), a.Expr, end.Add(-pending), end, step)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range matrix {
		if len(series.Floats) == int(pending/step)+1 {
			return true
		}
	}
	return false
}

// memory is a storage of series.
type memory []storage.Series

// Querier implements storage.Queryable.
func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for _, series := range m {
			matches := true
			for _, matcher := range matchers {
				matches = matches && matcher.Matches(series.Labels().Get(matcher.Name))
			}
			if matches {
				found.list = append(found.list, series)
			}
		}
		return found
	}}, nil
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	list []storage.Series
	at   int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
