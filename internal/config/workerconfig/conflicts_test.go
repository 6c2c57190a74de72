package workerconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A custom rule over a source that does not run never matches: lint and the worker say the same sentence.
func TestCustomRulesOverASourceThatDoesNotRun(t *testing.T) {
	const rules = "sources:\n  custom:\n  - name: a\n    matchFeatures:\n    - feature: usb.device\n      matchExpressions: {vendor: {op: Exists}}\n"
	const want = "a rule reads usb.device, and the source usb does not run: add usb to core.featureSources"
	for config, warned := range map[string]bool{
		"core: {featureSources: [cpu, pci], labelSources: [cpu]}\n" + rules: true,
		"core: {featureSources: [all, -usb], labelSources: []}\n" + rules:   true,
		"core: {featureSources: [cpu], labelSources: [usb]}\n" + rules:      false,
		"core: {featureSources: [usb], labelSources: [cpu]}\n" + rules:      false,
		rules: false,
	} {
		var got []string
		for _, p := range Check([]byte(config)) {
			got = append(got, p.Path+": "+p.Message)
			if p.Line < 2 {
				t.Errorf("%s: %v has no position", config, p)
			}
		}
		file := filepath.Join(t.TempDir(), "worker.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		_, logged, err := Load(file, "", Override{})
		if text := strings.Join(got, "; "); err != nil || strings.Contains(text, "sources.custom: "+want) != warned || (text != "") != warned {
			t.Errorf("%s: %v, got %q, want a warning: %t", config, err, text, warned)
		}
		if !slices.Equal(got, logged) {
			t.Errorf("%s: lint says %q, the worker %q", config, got, logged)
		}
	}
}

// rules at the top of the file are ignored.
func TestRulesBelongBelowCustom(t *testing.T) {
	list := Check([]byte("rules: []\n"))
	if len(list) != 1 || !strings.Contains(list[0].Message, "sources.custom") {
		t.Errorf("got %v, want one warning that names sources.custom", list)
	}
}

func TestSSE41IsSSE4(t *testing.T) {
	list := Check([]byte("sources: {cpu: {cpuid: {attributeBlacklist: [SSE4.1, SSE4]}}}\n"))
	if len(list) != 1 || !strings.HasSuffix(list[0].Message, "did you mean SSE4?") {
		t.Errorf("got %v, want one warning that names SSE4", list)
	}
}
