package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

var alert = regexp.MustCompile(`- alert: (\w+)\n(?:.*\n)*?.*severity: (\w+)`)

// TestTheTableOfAlertsHasTheirSeverity compares the table with the rules of the chart. hack/chart compares the sections.
func TestTheTableOfAlertsHasTheirSeverity(t *testing.T) {
	page := read(t, "troubleshooting.md")
	found := alert.FindAllStringSubmatch(read(t, "../charts/assay/templates/monitoring/rules.yaml"), -1)
	if len(found) < 20 {
		t.Errorf("only %d alerts were found", len(found))
	}
	for _, match := range found {
		if row := "\n| [" + match[1] + "](#" + strings.ToLower(match[1]) + ") | " + match[2] + " | "; !strings.Contains(page, row) {
			t.Errorf("no row of the table begins with %q", row)
		}
	}
	if rows := strings.Count(page, "\n| [Assay"); rows != len(found) {
		t.Errorf("the table has %d rows, and the chart %d alerts", rows, len(found))
	}
}
