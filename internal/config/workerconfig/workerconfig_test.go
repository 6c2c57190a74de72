package workerconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/config/workerconfig"
)

func TestErrorsHaveAPlace(t *testing.T) {
	cases := map[string]struct {
		text     string
		errs     []string
		warnings []string
	}{
		"Empty":       {"", nil, nil},
		"NullSection": {"core:\nsources:\n", nil, nil},
		"NFDsDefault": {"core:\n  klog: {}\nsources: {memory: {}, cpu: {cpuid: {attributeBlacklist: [BMI1]}}}\n", nil,
			[]string{"f:2:9: core.klog: has no effect: the log goes to stderr; its level is core.logLevel"}},
		"NotYAML":  {"core: [\n", []string{"f:1:7: the [ that begins here is not closed"}, nil},
		"NotAMap":  {"- core\n", []string{"f:1:1: the configuration: expected a map of keys to values, found a list"}, nil},
		"NotAMap2": {"core: [a]\n", []string{"f:1:7: core: expected a map of keys to values, found a list"}, nil},
		"AllErrors": {"core:\n  sleepInterval: soon\n  noPublish: maybe\n  labelSources: cpu\n  labelWhiteList: '['\n  ownerRefs: [cluster]\n", []string{
			`f:2:18: core.sleepInterval: invalid duration "soon": use for example 90s, 10m or 1h`,
			`f:3:14: core.noPublish: expected true or false, found "maybe"`,
			`f:4:17: core.labelSources: expected a list of strings, found "cpu"`,
			"f:5:19: core.labelWhiteList: error parsing regexp: missing closing ]: `[`",
			`f:6:14: core.ownerRefs: unknown owner "cluster": use node, pod, ds or none`,
		}, nil},
		"WrongPattern": {"sources: {local: {filePrefixes: {'[': [a], 'b*': [b]}}}\n",
			[]string{`f:1:33: sources.local.filePrefixes: invalid pattern of file names "[": use for example driver-*`}, nil},
		"WrongForms": {"sources: {pci: {deviceLabelForms: [vendor]}}\n",
			[]string{`f:1:36: sources.pci.deviceLabelForms[0]: expected a list of strings, found "vendor"`}, nil},
		"NegativeTime": {"sources: {local: {hookTimeout: -5s}}\n",
			[]string{`f:1:32: sources.local.hookTimeout: invalid duration "-5s": use for example 90s, 10m or 1h`}, nil},
		"Misspelled": {"core:\n  sleepIntervall: 5s\n  NOPUBLISH: true\n  xyzzy: 1\n", nil, []string{
			"f:2:3: core.sleepIntervall: unknown key is ignored; did you mean sleepInterval?",
			"f:3:3: core.NOPUBLISH: write noPublish",
			"f:4:3: core.xyzzy: unknown key is ignored",
		}},
		"Twice":           {"core: {noPublish: true, noPublish: false}\n", []string{`f:1:25: the key "noPublish" is already on line 1; one of the two would be lost`}, nil},
		"TwiceInTwoCases": {"core: {noPublish: true, nopublish: false}\n", []string{"f:1:25: core.noPublish: duplicate key, first on line 1"}, []string{"f:1:25: core.nopublish: write noPublish"}},
		"Level":           {"core: {logLevel: loud}\n", nil, []string{`f:1:18: core.logLevel: unknown level "loud" is ignored: use debug, info, warn or error`}},
		"Deprecated":      {"core: {sources: [cpu]}\n", nil, []string{"f:1:17: core.sources: deprecated: write core.labelSources"}},
		"SecondDocument":  {"core: {}\n---\nsources: {}\n", nil, []string{"f:3:1: only the first document is read; this one is ignored"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			warnings, err := config.Read("f", []byte(tc.text), workerconfig.Default().Keys())
			var errs []string
			if err != nil {
				errs = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tc.errs, errs); diff != "" {
				t.Errorf("errors: %s", diff)
			}
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
		})
	}
}

func TestOwnerRefsWinOverTheirOlderForm(t *testing.T) {
	for text, want := range map[string][]publish.Owner{
		"core: {}\n":                  nil,
		"core: {noOwnerRefs: true}\n": {},
		"core: {noOwnerRefs: true, ownerRefs: [pod]}\n":  {publish.OwnerPod},
		"core: {ownerRefs: [pod], noOwnerRefs: true}\n":  {publish.OwnerPod},
		"core: {ownerRefs: [pod], noOwnerRefs: false}\n": {publish.OwnerPod},
		"core: {ownerRefs: [none]}\n":                    {},
	} {
		s := workerconfig.Default()
		if _, err := config.Read("f", []byte(text), s.Keys()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, s.Owners); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestZeroAndNegativeIntervalsDiscoverOnce(t *testing.T) {
	for _, text := range []string{"0", "0s", "-1"} {
		s := workerconfig.Default()
		if _, err := config.Read("f", []byte("core: {sleepInterval: "+text+"}\n"), s.Keys()); err != nil || s.SleepInterval != 0 {
			t.Errorf("%s: %v, %v", text, s.SleepInterval, err)
		}
	}
}

func TestAliasesCannotMultiply(t *testing.T) {
	text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		text += strings.ReplaceAll(string(c)+": &"+string(c)+" [P,P,P,P,P,P,P,P,P,P]\n", "P", "*"+string(c-1))
	}
	_, err := config.Read("f", []byte(text), workerconfig.Default().Keys())
	if err == nil || !strings.Contains(err.Error(), "too many YAML nodes: at most 100000 are allowed, with aliases expanded") {
		t.Errorf("error = %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("core: {sleepInterval: 10s, ownerRefs: [node]}\nsources: {custom: [{name: x}], fake: {instanceFeatures: [{a: b}]}}\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := config.Read("f", []byte(text), workerconfig.Default().Keys())
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("no origin: %v", err)
		}
	})
}
