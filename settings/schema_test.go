package settings_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
	"github.com/assay-project/assay/settings"
)

// TestDurationPatternIsWhatDurationAccepts compares the pattern of the schemas with the reader.
func TestDurationPatternIsWhatDurationAccepts(t *testing.T) {
	pattern := regexp.MustCompile(config.DurationPattern)
	for _, number := range []string{"", "0", "1", "10", "1.5", "1.", ".5", ".", "-1", "+1", "1,5", "1 ", "x", "1h1"} {
		for _, unit := range []string{"", "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", "min", "hour", "H", " s", "h30m", "h 30m"} {
			text := number + unit
			if _, err := config.Duration(text); (err == nil) != pattern.MatchString(text) {
				t.Errorf("%q: the pattern matches: %v; reading gives %v", text, pattern.MatchString(text), err)
			}
		}
	}
}

func TestWarnsAboutSettingsThatMatchNothing(t *testing.T) {
	for file, want := range map[string]string{
		"labelWhiteList: amd.com\n":                  `labelWhiteList: no label name contains "amd.com"`,
		"labelWhiteList: ^(pci|cpu)-\n":              "",
		"extraLabelNs: [vendor.example.com/gpu]\n":   `extraLabelNs: no label has the namespace "vendor.example.com/gpu"`,
		"extraLabelNs: [node-role.kubernetes.io]\n":  `extraLabelNs: node-role.kubernetes.io stays closed whatever is set`,
		"extraLabelNs: ['*.example.com']\n":          `extraLabelNs: no label has the namespace "*.example.com"`,
		"denyLabelNs: ['*.example.com', '*', a.b]\n": "",
		"denyLabelNs: [example.com/*]\n":             `denyLabelNs: no label has the namespace "example.com/*"`,
		"featureGates: {NoSuchGate: true}\n":         "unknown feature gate NoSuchGate is ignored",
	} {
		found := settings.Review([]byte(file), false)
		switch {
		case want == "" && len(found) > 0:
			t.Errorf("%s: %v", file, found)
		case want == "":
		case len(found) != 1 || found[0].Severity != yamltree.Warning || !strings.HasPrefix(found[0].Message, want):
			t.Errorf("%s: got %v, want a warning %s", file, found, want)
		}
	}
}

func TestInstanceNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"": true, "gpu": true, "gpu-nodes.1": true, "GPU": true, "Foo Bar": false, "a_b": false, "-a": false, strings.Repeat("a", 240): false,
	} {
		s := settings.Default()
		s.Instance = name
		err := s.Check()
		if (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "invalid --instance") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
