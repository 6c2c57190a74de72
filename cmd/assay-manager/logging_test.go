package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestEveryLineIsJSON checks that with --log-format=json klog also writes JSON.
func TestEveryLineIsJSON(t *testing.T) {
	var b bytes.Buffer
	(&logging{format: "json"}).use(&b)
	t.Cleanup(klog.ClearLogger)
	klog.InfoS("Successfully acquired lease", "lease", "x")
	klog.Warning("deprecated")
	klog.ErrorS(errors.New("broken"), "Failed")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines, want 3:\n%s", len(lines), b.String())
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// TestLibrariesStartQuietly checks that messages of controller-runtime about its start are logged only with -v=1.
func TestLibrariesStartQuietly(t *testing.T) {
	for level, want := range []bool{false, true} {
		var b bytes.Buffer
		handler := quiet{(&logging{level: level}).handler(&b)}
		library := func(level slog.Level, message string) { // logs with the source position of controller-runtime
			r := slog.NewRecord(time.Now(), level, message, reflect.ValueOf(manager.New).Pointer()+1)
			if err := handler.Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		library(slog.LevelInfo, "Starting EventSource")
		library(slog.LevelError, "Reconciler error")
		logr.FromSlogHandler(handler).Info("Starting controller")
		if got := strings.Contains(b.String(), "EventSource"); got != want {
			t.Errorf("-v=%d: logged is %v, want %v", level, got, want)
		}
		for _, always := range []string{"Reconciler error", "Starting controller"} {
			if !strings.Contains(b.String(), always) {
				t.Errorf("-v=%d: %q is missing:\n%s", level, always, b.String())
			}
		}
	}
}
