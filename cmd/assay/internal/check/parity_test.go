package check_test

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/internal/worker"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/settings"
)

var (
	mutations = flag.Int("mutations", 300, "the `number` of changed configurations that assay lint and the programs read")
	seed      = flag.Uint64("seed", 1, "the seed of the changes")
)

// seeds are valid configurations by the name of their file.
var seeds = map[string][]string{
	"nfd-worker.conf": {`
core:
  sleepInterval: 60s
  featureSources: [all, -usb]
  labelSources: ["cpu", "pci"]
  labelWhiteList: "^(cpu|pci)-"
  noPublish: false
  noPublishFeatures: ["kernel.config"]
  ownerRefs: [node]
  maxFeatureBytes: 262144
  logLevel: info
sources:
  cpu: {cpuid: {attributeBlacklist: [AVX10, SSE42], attributeWhitelist: []}}
  kernel: {kconfigFile: /proc/config.gz, configOpts: [NO_HZ, X86]}
  pci:
    deviceClassWhitelist: ["03", "0b40"]
    deviceLabelFields: [class, vendor]
    deviceLabelForms: [[vendor], [class, vendor, device]]
  local: {hooksEnabled: true, hookTimeout: 10s, strict: false, filePrefixes: {"driver-*": [vendor.example.com/]}}
  fake: {labels: {a: "true"}, flagFeatures: [f], instanceFeatures: [{name: i}]}
  custom:
  - name: rule
    labels: {x: "true"}
    matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ["4"]}}}]
  system: {}
`, "core: {sleepInterval: 0}\n", "core:\n  klog: {v: \"4\"}\n  noOwnerRefs: true\n"},
	"nfd-master.conf": {`
extraLabelNs: ["added.ns.io"]
denyLabelNs: ["denied.ns.io", "*.denied.io"]
enableTaints: true
labelWhiteList: "foo"
resyncPeriod: "2h"
leaderElection: {leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
nfdApiParallelism: 10
informerPageSize: 0
restrictions:
  nodeFeatureNamespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}
  disableLabels: false
  allowOverwrite: true
removalBudget: {nodes: 10, share: 0.05, window: 10m, hold: 5m}
noExecuteBudget: {every: 5m, share: 0.1, oneZone: true}
maskSecrets: sensitive
maskedElements: ["*serial*"]
featureSources: "^assay-system/"
failTaint: example.com/failed=true:NoSchedule
lossTaint: example.com/lost:NoExecute
startupTaint: startup-taint.cluster-autoscaler.kubernetes.io/features
featuresReady: true
failOpenAfter: 10m
nodeShapeLabels: [example.com/pool]
featureGates: {FeatureScheduling: true, NodeFeatureAPI: true}
`, "noPublish: true\nautoDefaultNs: false\n", "klog: {v: 4}\nresourceLabels: [a]\nnoPublish: false\n"},
}

// words are values and pieces of text that mutations insert.
var words = []string{
	"60", "0", "-1", "1.5", "true", "no", "null", "~", `""`, `"x"`, "[]", "[1, a]", "{}", "{a: b}", "[[a]]", "1h", "10min", "1 h", "0x03", "(", "a*",
	"*a", "&a b", "!x y", "!!str 5", "!!int x", "'", "\"", "\t", "é", "\x01", "node", "Taint", "example.com/x:NoExecute", "- a", "? a", "5m", "-5m", ".5s", "1e3", "2",
	"1_000", "0o17", "yes", "0.05", "3", "a: b: c", "|", ">", "<<", "a=b:NoSchedule", "@x", "`x`", "%", "1:30", ".inf", ".nan", "2026-01-01",
}

// mutate returns a configuration with one to three changes.
func mutate(r *rand.Rand, text string) string {
	for range 1 + r.IntN(3) {
		lines := strings.Split(text, "\n")
		i := r.IntN(len(lines))
		word := words[r.IntN(len(words))]
		switch r.IntN(14) {
		case 0:
			lines[i] = lines[max(i-1, 0)]
		case 1:
			lines[i] = ""
		case 2:
			lines[i] = " " + lines[i]
		case 3:
			lines[i] = strings.TrimPrefix(lines[i], "  ")
		case 4:
			lines[i] = strings.ToLower(lines[i])
		case 5: // another value
			if key, _, ok := strings.Cut(lines[i], ":"); ok {
				lines[i] = key + ": " + word
			}
		case 6:
			lines[i] = strings.NewReplacer("[", "{", "]", "}").Replace(lines[i])
		case 7:
			lines[i] = strings.ReplaceAll(lines[i], `"`, "")
		case 8: // another word in the line
			if parts := strings.Fields(lines[i]); len(parts) > 1 {
				lines[i] = strings.Replace(lines[i], parts[1+r.IntN(len(parts)-1)], word, 1)
			}
		case 9:
			at := r.IntN(len(lines[i]) + 1)
			lines[i] = lines[i][:at] + word + lines[i][at:]
		case 10:
			if at := r.IntN(len(lines[i]) + 1); at > 0 {
				lines[i] = lines[i][:at-1] + lines[i][at:]
			}
		case 11: // a key in another case, twice, or with an alias
			if key, value, ok := strings.Cut(lines[i], ":"); ok {
				lines[i] = []string{strings.ToUpper(key) + ":" + value, lines[i] + "\n" + lines[i], key + ": &" + "x" + value, key + "  :" + value, `"` + strings.TrimSpace(key) + `":` + value,
					key + ": >-\n" + strings.Repeat(" ", len(key)) + value, key + ": !!str" + value, lines[i] + " # " + word}[r.IntN(8)]
			}
		case 12: // the whole text
			text = strings.Join(lines, "\n")
			return []string{strings.ReplaceAll(text, "\n", "\r\n"), "\ufeff" + text, text + "\n---\n" + text, text + "\n...\n", "%YAML 1.2\n---\n" + text, strings.ReplaceAll(text, "  ", "\t"),
				"- " + text, text[:len(text)/2], strings.ToUpper(text), "{" + text + "}", "# " + text, word}[r.IntN(12)]
		case 13:
			lines[i] = []string{"---", "...", "- ", "core:", "# x", "unknownKey: 1", "noPublish: true", "sources: {cpu: }", "{", "kind: NodeFeatureRule"}[r.IntN(10)]
		}
		text = strings.Join(lines, "\n")
	}
	return text
}

// start returns the error with which a program does not start with a configuration.
func start(t *testing.T, name string, data []byte) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if name == "nfd-worker.conf" {
		_, err := worker.New(worker.Options{ConfigFile: file, ConfigDir: t.TempDir(), LogLevel: &slog.LevelVar{}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
		return err
	}
	s, _, err := (&settings.Flags{File: file}).Load()
	if err != nil {
		return err
	}
	return s.CheckLosses()
}

// lint returns the errors of assay lint.
func lint(name string, data []byte) (errs []string) {
	f := manifest.Parse(name, data)
	for _, found := range check.New(review.Known{}, f).File(f) {
		if found.Severity == manifest.Error {
			errs = append(errs, found.Problem.String())
		}
	}
	return errs
}

func configMap(name, text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  " + name + ": |\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

// apply returns the error of the API server or of the program that reads the ConfigMap.
func apply(t *testing.T, name, manifest string) error {
	t.Helper()
	var object corev1.ConfigMap
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		return err
	}
	text, ok := object.Data[name]
	if !ok {
		return nil
	}
	return start(t, name, []byte(text))
}

func TestLintRejectsWhatProgramsDoNotStartWith(t *testing.T) {
	r := rand.New(rand.NewPCG(40, *seed))
	rejected := 0
	for i := range *mutations {
		name := []string{"nfd-worker.conf", "nfd-master.conf"}[i%2]
		text := seeds[name][r.IntN(len(seeds[name]))]
		if i >= 8 { // the first ones are valid
			text = mutate(r, text)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			err := start(t, name, []byte(text))
			if err != nil {
				rejected++
			}
			if errs := lint(name, []byte(text)); (err != nil) != (len(errs) > 0) {
				t.Errorf("the program: %v\nassay lint: %q\nof\n%s", err, errs, text)
			}
			m := configMap(name, text)
			err = apply(t, name, m)
			if errs := lint("configmap.yaml", []byte(m)); (err != nil) != (len(errs) > 0) {
				t.Errorf("in a ConfigMap: the program: %v\nassay lint: %q\nof\n%s", err, errs, m)
			}
		})
	}
	t.Logf("%d of %d are rejected", rejected, *mutations)
	if rejected < *mutations/10 || rejected > *mutations*9/10 {
		t.Errorf("%d of %d configurations are rejected: the mutations show nothing", rejected, *mutations)
	}
}
