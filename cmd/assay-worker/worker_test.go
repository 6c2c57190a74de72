package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/config/workerconfig"
)

func TestFlagsWinOverInlineOptionsOverFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf")
	writeFile(t, file, "core: {sleepInterval: 10s, labelSources: [cpu], featureSources: [cpu]}\n")
	opt, err := parseFlags([]string{"-config", file, "-options", `{"core":{"labelSources":["pci"],"featureSources":["pci"]}}`, "--label-sources=usb,memory"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := workerconfig.Load(opt.configFile, opt.options, opt.override)
	if err != nil {
		t.Fatal(err)
	}
	if c.SleepInterval != 10*time.Second {
		t.Errorf("sleepInterval = %v", c.SleepInterval)
	}
	if diff := cmp.Diff([][]string{{"usb", "memory"}, {"pci"}}, [][]string{c.LabelSources, c.FeatureSources}); diff != "" {
		t.Error(diff)
	}
}

func TestRetiredFlagsWarnAndDoNotStopTheWorker(t *testing.T) {
	for _, arg := range []string{
		"-enable-nodefeature-api", "-enable-nodefeature-api=true", "--server=nfd-master:8080", "-ca-file=x", "-no-owner-refs",
		"-sleep-interval=5s", "-sources=cpu", "-label-whitelist=.*", "-metrics=8081", "-feature-gates=NodeFeatureAPI=false", "-log_file=x",
	} {
		t.Run(arg, func(t *testing.T) {
			opt, err := parseFlags([]string{arg}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if len(opt.warnings) != 1 {
				t.Errorf("warnings = %v", opt.warnings)
			}
		})
	}
}

func TestExportIsWhatWouldBePublished(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := []string{"-oneshot", "-no-publish", "-o=json", "-host-paths=native", "-node-name=n1", "-feature-sources=fake", "-label-sources=fake,-kernel"}
	if code := run(context.Background(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var nf nfdv1alpha1.NodeFeature
	if err := json.Unmarshal(stdout.Bytes(), &nf); err != nil {
		t.Fatal(err)
	}
	if nf.Name != "n1" || nf.Labels[nfdv1alpha1.NodeNameLabel] != "n1" {
		t.Errorf("metadata = %v", nf.ObjectMeta)
	}
	want := map[string]string{"fake-fakefeature1": "true", "fake-fakefeature2": "true", "fake-fakefeature3": "true"}
	if diff := cmp.Diff(want, nf.Spec.Labels); diff != "" {
		t.Error(diff)
	}
	if len(nf.Spec.Features.Flags["fake.flag"].Elements) != 3 || len(nf.Spec.Features.Instances["fake.instance"].Elements) != 3 {
		t.Errorf("features = %v", nf.Spec.Features)
	}
}

func TestWithholdAndWhiteList(t *testing.T) {
	w := &worker{config: &workerconfig.Settings{NoPublishFeatures: []string{"kernel.*", "pci.device"}, LabelWhiteList: regexp.MustCompile("^cpu-")}}
	report := discovery.Report{Labels: map[string]string{"cpu-x": "1", "vendor.io/cpu-y": "1", "pci-z": "1", "cpu-bad": "a b"}}
	report.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.config": {}, "kernel.version": {}, "cpu.model": {}}
	report.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{"pci.device": {}, "pci.devices": {}}
	c, problems := w.content(&report)
	if diff := cmp.Diff(map[string]string{"cpu-x": "1", "vendor.io/cpu-y": "1"}, c.Labels); diff != "" {
		t.Error(diff)
	}
	if len(c.Features.Attributes) != 1 || len(c.Features.Instances) != 1 || len(problems) != 1 {
		t.Errorf("features %v, problems %v", c.Features, problems)
	}
}

func TestCustomRulesOfEveryNotation(t *testing.T) {
	features := discovery.NewResult()
	features.Flags("kernel.loadedmodule", []string{"e1000", "veth"})
	features.Attributes("kernel.version", map[string]string{"major": "6", "full": "6.1.0"})
	features.Attributes("system.name", map[string]string{"nodename": "n1"})
	features.Instances("pci.device", []map[string]string{{"vendor": "15b3", "device": "1017", "class": "0200"}})
	p, errs := engine{}.Compile([]custom.Document{{Origin: "conf", Data: []byte(`
- name: legacy
  matchOn:
  - loadedKMod: [e1000]
- name: shorthand
  labels: {shorthand: "true"}
  matchFeatures:
  - feature: kernel.loadedmodule
    matchExpressions: [e1000, veth]
- name: newer operators
  labels: {ge: "@kernel.version.major"}
  matchFeatures:
  - feature: kernel.version
    matchExpressions: {full: {op: Ge, value: ["6.0"], type: version}}
- name: wrong
  labels: {wrong: "true"}
  matchFeatures:
  - feature: kernel.version
    matchExpressions: {full: {op: InRegexp, value: ["["]}}
- name: back-reference
  labels: {chain: "true"}
  matchFeatures:
  - feature: rule.matched
    matchExpressions: {shorthand: {op: IsTrue}}
`)}})
	if len(errs) == 0 || !strings.Contains(errs[0].Error(), "not a regular expression") {
		t.Errorf("errors = %v, want one about the regular expression", errs)
	}
	labels, failed := p.Labels("n1", &features.Features)
	want := map[string]string{"custom-legacy": "true", "shorthand": "true", "ge": "6", "chain": "true"}
	if diff := cmp.Diff(want, labels); diff != "" || len(failed) > 0 {
		t.Error(diff, failed)
	}
}

// A worker writes a NodeFeature, and never a Node.
func TestCustomRulesGiveLabelsAlone(t *testing.T) {
	features := discovery.NewResult()
	features.Flags("kernel.loadedmodule", []string{"e1000"})
	p, errs := engine{}.Compile([]custom.Document{{Origin: "conf", Data: []byte(`
- name: everything
  labels: {found: "true"}
  annotations: {told: "true"}
  extendedResources: {slots: "2"}
  taints: [{key: example.com/found, effect: NoSchedule}]
  matchFeatures:
  - feature: kernel.loadedmodule
    matchExpressions: {e1000: {op: Exists}}
`)}})
	said := fmt.Sprint(errs)
	for _, want := range []string{"annotations", "extendedResources", "taints"} {
		if !strings.Contains(said, want) {
			t.Errorf("nobody is told that %s mean nothing here; said is %s", want, said)
		}
	}
	labels, failed := p.Labels("n1", &features.Features)
	if diff := cmp.Diff(map[string]string{"found": "true"}, labels); diff != "" || len(failed) > 0 {
		t.Error(diff, failed)
	}
}

func TestHealthTellsTheTruth(t *testing.T) {
	m := newMetrics("n1")
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		m.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("ready before anything is published: %d", code)
	}
	m.discovered(3 * time.Millisecond)
	m.published(publish.Event{Change: publish.Created, Bytes: 100})
	if code, body := get("/readyz"); code != http.StatusOK {
		t.Errorf("not ready after publishing: %d %s", code, body)
	}
	m.published(publish.Event{Err: context.DeadlineExceeded})
	if code, _ := get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("ready while publishing fails: %d", code)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("an API server that is away is no reason for a restart: %d", code)
	}
	_, text := get("/metrics")
	for _, want := range []string{
		`nfd_worker_build_info{version="devel"`,
		`nfd_worker_feature_discovery_duration_seconds_bucket{node="n1",le="0.005"} 1`,
		`nfd_worker_feature_discovery_duration_seconds_count{node="n1"} 1`,
		`assay_worker_publish_total{change="created"} 1`,
		`assay_worker_publish_failures_total 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
