package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestMetricsHaveNoLabelsThatGrowWithTheCluster: a series per rule and node would be a million series; see
// docs/nfd-differences.md.
func TestMetricsHaveNoLabelsThatGrowWithTheCluster(t *testing.T) {
	m := sharedMetrics()
	m.evaluation.Observe(1)
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	evaluation := 0
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "nfd_master_") {
			continue
		}
		for _, series := range family.GetMetric() {
			if len(series.GetLabel()) > 0 {
				t.Errorf("%s has labels: %v", family.GetName(), series.GetLabel())
			}
			if family.GetName() == "nfd_master_nodefeaturerule_processing_duration_seconds" {
				evaluation++
			}
		}
	}
	if evaluation != 1 {
		t.Errorf("there are %d histograms of evaluation, want one", evaluation)
	}
}

// TestRejectedOutputsAreCountedByKind counts what a rule asks for and may not write. A value that the node lacks is not counted.
func TestRejectedOutputsAreCountedByKind(t *testing.T) {
	set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
		{Name: "missing", Labels: map[string]string{"a": "{@no.such.thing}", "b": "{@no.such.name}"}},
		{Name: "label", LabelsTemplate: "kubernetes.io/hostname=x", MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "a.b"}}},
		{Name: "fails", Labels: map[string]string{"c": "{1/@a.b.zero}"}},
	}}, rules.Options{})
	if set == nil {
		t.Fatal(report.Errors.ToAggregate())
	}
	outcome := rules.Link(rules.Options{}, set).Eval(rules.Input{Facts: facts.FromMap(map[string]facts.Feature{
		"a.b": {Attributes: facts.NewAttributes(map[string]string{"zero": "0"})},
	}, nil)})
	registry := prometheus.NewRegistry()
	counter := func(name string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name})
		registry.MustRegister(c)
		return c
	}
	m := &metrics{errors: counter("errors"), labels: counter("labels"), resources: counter("resources"), taints: counter("taints")}
	m.count(rejectionsOf(outcome))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetCounter().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"errors": 1, "labels": 1, "resources": 0, "taints": 0}, got); diff != "" {
		t.Errorf("-want +got:\n%s\n%+v", diff, outcome.Rejected())
	}
}
