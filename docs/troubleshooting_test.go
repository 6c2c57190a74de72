package docs_test

import (
	"io/fs"
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
