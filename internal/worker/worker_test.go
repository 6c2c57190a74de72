package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/config/workerconfig"
)

func TestWithholdAndWhiteList(t *testing.T) {
	w := &Worker{config: &workerconfig.Settings{NoPublishFeatures: []string{"kernel.*", "pci.device"}, LabelWhiteList: regexp.MustCompile("^cpu-")}}
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

// TestWorkerWithoutTheHostsMountsIsNotReady: it names the mount, and is ready again with it.
func TestWorkerWithoutTheHostsMountsIsNotReady(t *testing.T) {
	root := t.TempDir()
	var log bytes.Buffer
	w, err := New(Options{HostRoot: root, HostPaths: "native", NodeName: "n1", ConfigFile: "/dev/null", ConfigDir: root, LogLevel: new(slog.LevelVar)},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ready := func() string {
		w.metrics.nothingToPublish()
		w.discover(t.Context(), false)
		r := httptest.NewRecorder()
		w.metrics.handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return r.Body.String()
	}
	for range 2 {
		got := ready()
		for _, want := range []string{"/proc of the host is not mounted: there is no " + root + "/proc/version", "/sys of the host is not mounted: there is no " + root + "/sys/devices"} {
			if !strings.Contains(got, want) {
				t.Errorf("readyz = %q, want %q", got, want)
			}
		}
	}
	if n := strings.Count(log.String(), "/sys of the host is not mounted"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, &log)
	}
	if err := errors.Join(os.MkdirAll(root+"/sys/devices", 0o755), os.MkdirAll(root+"/proc", 0o755), os.WriteFile(root+"/proc/version", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := ready(); got != "ok\n" {
		t.Errorf("readyz = %q with the mounts, want ok", got)
	}
}

// get returns the answer of a worker's HTTP server.
func get(w *Worker, path string) (int, string) {
	answer := httptest.NewRecorder()
	w.metrics.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

func TestHealthTellsTheTruth(t *testing.T) {
	m := newMetrics("n1")
	get := func(path string) (int, string) { return get(&Worker{metrics: m}, path) }
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
		t.Errorf("an API server that is away must not cause a restart: %d", code)
	}
	_, text := get("/metrics")
	for _, want := range []string{
		`nfd_worker_build_info{version="devel"`,
		`nfd_worker_feature_discovery_duration_seconds_bucket{node="n1",le="0.005"} 1`,
		`nfd_worker_feature_discovery_duration_seconds_count{node="n1"} 1`,
		`assay_worker_publish_total{change="created"} 1`,
		`assay_worker_publish_failures_total 1`,
		"\nassay_configuration_valid 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestASuppressedElementIsAMetric as long as the worker publishes an old value of it.
func TestASuppressedElementIsAMetric(t *testing.T) {
	w := &Worker{metrics: newMetrics("n1"), log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	publishes := func(value, want string, suppressed int) {
		t.Helper()
		got := w.damp(now, publish.Content{Labels: map[string]string{"link": value}}).Labels["link"]
		_, text := get(w, "/metrics")
		if line := fmt.Sprintf("\nassay_worker_suppressed_elements %d\n", suppressed); got != want || !strings.Contains(text, line) {
			t.Errorf("%s is published as %s, want %s and %s in\n%s", value, got, want, line, text)
		}
		now = now.Add(time.Second)
	}
	for _, value := range []string{"a", "b", "c", "d"} {
		publishes(value, value, 0)
	}
	publishes("e", "d", 1)
	now = now.Add(time.Hour)
	publishes("e", "e", 0)
}

// TestTheBootIsPublishedWhateverIsSelected: a new node with the start-up taint is opened only when the controller knows of which boot its
// features are.
func TestTheBootIsPublishedWhateverIsSelected(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"proc/version": "", "sys/devices/x": "", "proc/sys/kernel/random/boot_id": "b1\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, config := range []string{
		"core: {featureSources: [pci], labelSources: [pci]}", "core: {featureSources: []}", "core: {featureSources: [-system]}",
		`core: {noPublishFeatures: ["system.*"]}`, `core: {noPublishFeatures: ["*"]}`,
	} {
		w, err := New(Options{HostRoot: root, HostPaths: "native", NodeName: "n1", ConfigFile: "/dev/null", Inline: config, ConfigDir: root, LogLevel: new(slog.LevelVar)},
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c, ok := w.discover(t.Context(), false)
		if got := c.Features.Attributes["system.boot"].Elements["id"]; !ok || got != "b1" {
			t.Errorf("%s: published: %t, system.boot is %q, want b1", config, ok, got)
		}
	}
}
