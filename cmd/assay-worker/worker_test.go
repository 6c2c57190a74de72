package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/config/workerconfig"
)

func TestFlagsWinOverInlineOptionsOverFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf")
	writeFile(t, file, "core: {sleepInterval: 10s, labelSources: [cpu], featureSources: [cpu]}\n")
	opt, err := parseFlags([]string{"-config", file, "-options", `{"core":{"labelSources":["pci"],"featureSources":["pci"]}}`, "--label-sources=usb,memory"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := workerconfig.Load(opt.ConfigFile, opt.Inline, opt.Override)
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
