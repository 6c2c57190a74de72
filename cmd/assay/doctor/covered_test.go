package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// elsewhere are the checks that report what a Warning Event is about by the state of an object.
var elsewhere = map[string]string{
	"RuleInvalid": "rules", "RuleUnresolved": "rules", "RuleFailed": "rules", "RuleConflicted": "rules", "RuleWithheld": "rules",
	"TemplateNotReady": "rules", "GroupNotReady": "rules", "RequestNotReady": "scheduling", "PolicyNotReady": "scheduling",
	"NotMaterialized": "scheduling", "NodeRejected": "rules", "KeyFlapping": "holds", "KeyContested": "holds", "KeyRefused": "holds",
	"AnotherMaster": "holds", "LabelsUnmet": "ready", "NodeDiffers": "shapes", "NodesDeviate": "baselines", "NoMajority": "baselines",
	"BaselineNotReady": "baselines", "DefinitionNotWhole": "definitions", "InvalidConfiguration": "configuration",
	// The type of these Events is Normal.
	"TemplateChanged": "", "LossTaintRemoved": "", "DefinitionWhole": "", "ValueUnknown": "", "FeaturesIncomplete": "", "HoldsOmitted": "",
}

// alerts are the checks that report what an alert of the chart is about.
var alerts = map[string]string{
	"AssayRemovalsHeld": "events", "AssayAdditionsHeld": "events", "AssayInconsistentFacts": "nodes", "AssayStartupTaintTimeout": "events", "AssayNodesNotReady": "ready",
	"AssayNodeUpdatesFail": "rights", "AssayNodesFailed": "rules", "AssayNodesFlapping": "holds", "AssayWorkerSuppresses": "holds",
	"AssayWorkerDoesNotPublish": "worker", "AssayTopologyDoesNotPublish": "topology", "AssayTopologyWithoutKubelet": "topology",
	"AssayFeaturesLeftOut": "events", "AssayCertificateExpires": "webhook", "AssayDefinitionNotWhole": "definitions",
	"AssayBuiltInRulesWrong": "configuration", "AssayConfigurationInvalid": "configuration", "AssayRulesRejected": "rules",
	"AssayRulesUnresolved": "rules", "AssayNodesDeviate": "baselines", "AssayControllerAbsent": "lease", "AssayNodesWithoutWorker": "worker",
	"AssayWebhookAbsent": "webhook", "AssayWebhookDoesNotAnswer": "webhook", "AssayExtenderDoesNotKnow": "scheduling",
	"AssayExtenderFails": "scheduling", "AssayExtenderRefuses": "scheduling",
}

// conditions are the checks that report a condition that is not good.
var conditions = map[string]string{
	"Accepted": "rules", "Resolved": "rules", "Healthy": "rules", "Conflicted": "rules", "Rejecting": "rules", "Withheld": "rules",
	"Ready": "rules", "Stalled": "rules", "Flapping": "holds", "Satisfiable": "scheduling", "Materialized": "scheduling",
	"Conforming": "baselines", "Contradicted": "shapes",
}

var (
	alertOfChart    = regexp.MustCompile(`- alert: (\w+)`)
	conditionOfAPI  = regexp.MustCompile(`\bCondition[A-Z]\w+\s+= "([A-Z]\w+)"`)
	reasonInRow     = regexp.MustCompile("(?m)^\\| ((?:`[A-Z]\\w+`(?:, )?)+) \\|")
	reasonInCell    = regexp.MustCompile("`([A-Z]\\w+)`")
	checkInTheCode  = regexp.MustCompile(`(?:e\.(?:report|ok|object|unready)\(|check = |Check: )"([a-z]+)"`)
	checkOfItsParts = regexp.MustCompile(`e\.absent\("([a-z]+)"`)
)

// TestEveryAlertEventAndConditionHasACheck compares the lists above with the alerts of the chart, the Events on the page about them, which a
// test of docs compares with the code, and the conditions of the API. It fails for one that is new, and for one that no longer exists.
func TestEveryAlertEventAndConditionHasACheck(t *testing.T) {
	checks := map[string]bool{}
	for _, dir := range []string{".", ".."} {
		for _, file := range sourcesIn(t, dir) {
			for _, of := range []*regexp.Regexp{checkInTheCode, checkOfItsParts} {
				for _, match := range of.FindAllStringSubmatch(file, -1) {
					checks[match[1]] = true
				}
			}
		}
	}
	compare := func(what string, found [][]string, known map[string]string) {
		t.Helper()
		exists := map[string]bool{}
		for _, match := range found {
			exists[match[1]] = true
			if check, ok := known[match[1]]; !ok {
				t.Errorf("no check of assay doctor reports the %s %s", what, match[1])
			} else if check != "" && !checks[check] {
				t.Errorf("the %s %s is reported by the check %s, which does not exist", what, match[1], check)
			}
		}
		for name := range known {
			if !exists[name] {
				t.Errorf("the %s %s does not exist any more", what, name)
			}
		}
	}
	compare("alert", alertOfChart.FindAllStringSubmatch(text(t, "../../../charts/assay/templates/monitoring/rules.yaml"), -1), alerts)
	events := map[string]string{}
	for reason := range reported {
		events[reason] = "events"
	}
	for reason, check := range elsewhere {
		if events[reason] != "" {
			t.Errorf("the reason %s is reported twice", reason)
		}
		events[reason] = check
	}
	_, page, _ := strings.Cut(text(t, "../../../docs/troubleshooting.md"), "\n## Events\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var reasons [][]string
	for _, row := range reasonInRow.FindAllStringSubmatch(page, -1) {
		reasons = append(reasons, reasonInCell.FindAllStringSubmatch(row[1], -1)...)
	}
	compare("reason", reasons, events)
	var found [][]string
	for _, dir := range []string{"../../../api/nfd/v1alpha1", "../../../api/assay/v1alpha1"} {
		for _, file := range sourcesIn(t, dir) {
			found = append(found, conditionOfAPI.FindAllStringSubmatch(file, -1)...)
		}
	}
	compare("condition", found, conditions)
}

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sourcesIn returns the Go files of a directory without tests.
func sourcesIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			out = append(out, text(t, name))
		}
	}
	return out
}
