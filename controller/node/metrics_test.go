package node

import (
	"strings"
	"testing"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestMetricsHaveNoLabelsThatGrowWithTheCluster: a series per rule and node would be a million series; see
// docs/migrating-from-nfd.md.
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
