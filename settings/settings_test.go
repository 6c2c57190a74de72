package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/settings"
)

func TestErrorsHaveAPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want []string
	}{
		"Binary":    {"\x00\x01", []string{":1:1: the file is binary, not YAML"}},
		"Control":   {"a: \x01\n", []string{":1:4: control characters are not allowed"}},
		"NotYAML":   {"a: [\nb", []string{":1:4: the [ that begins here is not closed"}},
		"NotAMap":   {"- a\n", []string{":1:1: the configuration: expected a map of keys to values, found a list"}},
		"AllErrors": {"noPublish: maybe\nresyncPeriod: soon\nnfdApiParallelism: many\n", []string{`:1:12: noPublish: expected true or false, found "maybe"`, `:2:15: resyncPeriod: invalid duration "soon": use for example 90s, 10m or 1h`, `:3:20: nfdApiParallelism: expected a whole number, found "many"`}},
		"Regexp":    {"labelWhiteList: \"(\"\n", []string{":1:17: labelWhiteList: error parsing regexp"}},
		"List":      {"restrictions:\n  disableLabels: [true]\n", []string{":2:18: restrictions.disableLabels: expected true or false, found a list"}},
		"Strings":   {"extraLabelNs: [[a]]\n", []string{":1:16: extraLabelNs[0]: expected a string, found a list"}},
		"Gates":     {"featureGates: {A: 1}\n", []string{`:1:19: featureGates.A: expected true or false, found "1"`}},
		"Selector": {"restrictions:\n  nodeFeatureNamespaceSelector: {matchLabel: {a: b}}\n",
			[]string{`:2:33: restrictions.nodeFeatureNamespaceSelector: invalid label selector: json: unknown field "matchLabel"`}},
		"Operator":         {"restrictions:\n  nodeFeatureNamespaceSelector: {matchExpressions: [{key: a, operator: Like}]}\n", []string{"Like"}},
		"TwiceInTwoCases":  {"noPublish: true\nNOPUBLISH: false\n", []string{":2:1: noPublish: duplicate key, first on line 1"}},
		"EvictsTooMany":    {"noExecuteBudget: {every: 10s, share: 5}\n", []string{"invalid noExecuteBudget.share 5: use a number from 0 to 1"}},
		"EvictsBackwards":  {"noExecuteBudget: {every: -10s}\n", []string{`:1:26: noExecuteBudget.every: invalid duration "-10s"`}},
		"NegativePage":     {"informerPageSize: -1\n", []string{"invalid informerPageSize -1: use a number of at least 0"}},
		"Zero":             {"nfdApiParallelism: 0\n", []string{"invalid nfdApiParallelism 0: use a number of at least 1"}},
		"LeaderElection":   {"leaderElection: {leaseDuration: 5s}\n", []string{"leaderElection: leaseDuration must be greater than renewDeadline"}},
		"Mask":             {"maskSecrets: perhaps\n", []string{"invalid maskSecrets \"perhaps\": use always, sensitive or never"}},
		"AnchorWithinSelf": {"a: &a [*a]\n", []string{":1:8: the anchor &a is used within itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "nfd-master.conf")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := (&settings.Flags{File: file}).Load()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is\n%v\nwhich lacks %q", err, want)
				}
			}
		})
	}
}

func TestEqualComparesRegularExpressionsByTheirText(t *testing.T) {
	read := func(text string) *settings.Settings {
		s := settings.Default()
		if _, err := s.Read("f", []byte(text)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := read("labelWhiteList: ^a\nfeatureSources: b\nfeatureGates: {X: true}\n")
	for text, want := range map[string]bool{
		"featureGates: {X: true}\nfeatureSources: b\nlabelWhiteList: ^a\n": true,
		"labelWhiteList: ^a\nfeatureSources: b\n":                          false,
		"labelWhiteList: ^c\nfeatureSources: b\nfeatureGates: {X: true}\n": false,
	} {
		if got := a.Equal(read(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("noPublish: true\nrestrictions: {nodeFeatureNamespaceSelector: {matchLabels: {a: b}}}\nleaderElection: {leaseDuration: 30s}\nklog: {v: '4'}\n")
	f.Add("a: &a {b: *a}")
	f.Add("restrictions: [")
	f.Fuzz(func(t *testing.T, text string) {
		s := settings.Default()
		_, err := s.Read("f", []byte(text))
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("no origin: %v", err)
		}
		s.Rules()
		s.Gather("namespace")
	})
}
