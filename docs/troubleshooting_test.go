package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	reason = regexp.MustCompile(`\breason[A-Z]\w*\s*=\s*"([A-Z]\w+)"|\bSet(?:If)?\(\w+\.Condition\w+, [\w. >]+, "([A-Z]\w+)"`)
	event  = regexp.MustCompile(`EventType\w+, (?:"([A-Z]\w+)"|(Reason\w+))|"([A-Z]\w+NotReady)"|metav1\.Condition\w+, "([A-Z]\w+)"\},`)
	// declaration matches the name of a metric where a program declares it, or writes it as text.
	declaration = regexp.MustCompile("[\"`]((?:nfd|assay)_[a-z_]+[a-z])[\"{ ]")
	metric      = regexp.MustCompile(`\b(?:nfd|assay)_(?:master|worker|webhook|extender|certificate|removals|builtin|gc|controller|published)_\w+`)
)

// TestTroubleshootingKnowsAllReasons compares the page with the reasons of conditions in the code.
func TestTroubleshootingKnowsAllReasons(t *testing.T) {
	page := read(t, "troubleshooting.md")
	found := reason.FindAllStringSubmatch(sources(t, "../controller")+sources(t, "../internal/assembly")+sources(t, "../rules/withhold.go"), -1)
	if len(found) == 0 {
		t.Fatal("no reasons were found; where are they now?")
	}
	for _, match := range found {
		if name := match[1] + match[2]; !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not explain the reason %s", name)
		}
	}
}

// TestTroubleshootingKnowsAllEvents compares the page with the Events that the controller emits itself.
func TestTroubleshootingKnowsAllEvents(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "troubleshooting.md"), "\n## Events\n")
	page, _, _ = strings.Cut(page, "\n## ")
	code := sources(t, "../controller")
	found := event.FindAllStringSubmatch(code, -1)
	if len(found) < 15 {
		t.Fatalf("only %d events were found; how are they emitted now?", len(found))
	}
	for _, match := range found {
		name := strings.Join(match[1:], "")
		if value := regexp.MustCompile(`\b` + name + `\s*= "(\w+)"`).FindStringSubmatch(code); value != nil {
			name = value[1] // of a constant
		}
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not explain the event %s", name)
		}
	}
}

var (
	// notReady matches the reason of a condition FeaturesReady that is False, ofConformance that of a condition Conforming.
	notReady      = regexp.MustCompile(`\bunready\((?:\w+\.)?(\w+), `)
	ofConformance = regexp.MustCompile(`\bReason[A-Z]\w+ += "(\w+)"`)
)

// TestPagesKnowTheReasonsOfNodes compares readiness.md with the reasons of FeaturesReady, and baselines.md with those of Conforming.
func TestPagesKnowTheReasonsOfNodes(t *testing.T) {
	code := sources(t, "../controller/node/decide")
	page, constants := read(t, "readiness.md"), code+sources(t, "../api")
	found := map[string]bool{}
	for _, match := range notReady.FindAllStringSubmatch(code, -1) {
		if match[1] == "reason" { // the declaration
			continue
		}
		value := regexp.MustCompile(`\b` + match[1] + `\s*= "(\w+)"`).FindStringSubmatch(constants)
		if value == nil {
			t.Errorf("the constant %s was not found", match[1])
			continue
		}
		found[value[1]] = true
	}
	for name := range found {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("readiness.md does not explain the reason %s", name)
		}
	}
	if len(found) < 6 {
		t.Errorf("only the reasons %v were found; how are they written now?", slices.Sorted(maps.Keys(found)))
	}
	page = read(t, "baselines.md")
	list := ofConformance.FindAllStringSubmatch(read(t, "../api/assay/v1alpha1/nodebaseline.go"), -1)
	if len(list) < 4 {
		t.Errorf("only the reasons %v were found; how are they written now?", list)
	}
	for _, match := range list {
		if !strings.Contains(page, "`"+match[1]+"`") {
			t.Errorf("baselines.md does not explain the reason %s", match[1])
		}
	}
}

var (
	// reasonCell matches the reasons in the second column of a table of conditions.
	reasonCell = regexp.MustCompile("(?m)^\\| (?:`[A-Z]\\w+`)?[^|]*\\| ((?:`[A-Z]\\w+`(?:, )?)+) \\|")
	// eventCell matches the reasons in the first column of the table of Events.
	eventCell = regexp.MustCompile("(?m)^\\| ((?:`[A-Z]\\w+`(?:, )?)+) \\|")
	codeSpan  = regexp.MustCompile("`([A-Z]\\w+)`")
)

// TestReasonsOfConditionsAndEventsExist looks up the reasons that the tables list in the code: one that was renamed would be searched in vain.
func TestReasonsOfConditionsAndEventsExist(t *testing.T) {
	code := sources(t, "../controller") + sources(t, "../internal") + sources(t, "../rules") + sources(t, "../api") + sources(t, "../cmd") + sources(t, "../discovery")
	page := read(t, "troubleshooting.md")
	_, events, _ := strings.Cut(page, "\n## Events\n")
	events, _, _ = strings.Cut(events, "\n## ")
	_, conditions, _ := strings.Cut(page, "\n## Conditions of a rule\n")
	conditions, _, _ = strings.Cut(conditions, "\n## ")
	var cells []string
	for _, text := range []string{conditions, read(t, "readiness.md"), read(t, "baselines.md")} {
		for _, match := range reasonCell.FindAllStringSubmatch(text, -1) {
			cells = append(cells, match[1])
		}
	}
	for _, match := range eventCell.FindAllStringSubmatch(events, -1) {
		cells = append(cells, match[1])
	}
	found := 0
	for _, match := range codeSpan.FindAllStringSubmatch(strings.Join(cells, " "), -1) {
		found++
		if !strings.Contains(code, `"`+match[1]+`"`) {
			t.Errorf("the pages list the reason %s, which no code has", match[1])
		}
	}
	if found < 80 {
		t.Errorf("only %d reasons were found; how are they written now?", found)
	}
}

// checkOfDoctor matches the name of a check where assay doctor reports it.
var checkOfDoctor = regexp.MustCompile(`(?:e\.(?:report|ok)\(|check = |Check: )"([a-z]+)"`)

// TestTroubleshootingKnowsAllChecksOfDoctor compares the table of checks with the code.
func TestTroubleshootingKnowsAllChecksOfDoctor(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "troubleshooting.md"), "\n## The installation\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `") {
			for name := range strings.SplitSeq(cell, ", ") {
				listed[strings.Trim(name, "`")] = true
			}
		}
	}
	// Parts of the installation are checks too.
	known := map[string]bool{"controller": true, "webhook": true, "extender": true, "scheduler": true, "worker": true}
	for _, match := range checkOfDoctor.FindAllStringSubmatch(sources(t, "../cmd/assay/doctor"), -1) {
		known[match[1]] = true
	}
	if !maps.Equal(known, listed) {
		t.Errorf("the page lists the checks %v; assay doctor has %v", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(known)))
	}
}

// TestObservabilityKnowsAllMetrics compares the page with the metrics of all programs.
func TestObservabilityKnowsAllMetrics(t *testing.T) {
	page := read(t, "observability.md")
	code := sources(t, "../cmd") + sources(t, "../controller") + sources(t, "../webhook") + sources(t, "../extender") + sources(t, "../internal")
	found := declaration.FindAllStringSubmatch(code, -1)
	if len(found) < 40 {
		t.Fatalf("only %d metrics were found; how are they declared now?", len(found))
	}
	for _, match := range found {
		if !strings.Contains(page, "`"+match[1]+"`") {
			t.Errorf("the page does not explain the metric %s", match[1])
		}
	}
}

// TestPagesNameRealMetrics guards against metrics that were renamed.
func TestPagesNameRealMetrics(t *testing.T) {
	code := sources(t, "../cmd") + sources(t, "../controller") + sources(t, "../webhook") + sources(t, "../extender") + sources(t, "../internal")
	names := metric.FindAllString(read(t, "troubleshooting.md")+read(t, "observability.md")+read(t, "admission.md"), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		series := regexp.MustCompile(`_(?:count|sum|bucket)$`).ReplaceAllString(name, "") // of a histogram
		if !strings.Contains(code, name) && !strings.Contains(code, series) {
			t.Errorf("the page names the metric %s, which no code has", name)
		}
	}
}

// sources is the code below a directory, without tests.
func sources(t *testing.T, dir string) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		code.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}
