package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/settings"
)

// parse runs the controller's command line up to the connection to the cluster.
func parse(t *testing.T, file string, args ...string) (*controllerFlags, []string, *cobra.Command) {
	t.Helper()
	f := &controllerFlags{}
	cmd := &cobra.Command{Use: "controller"}
	f.register(cmd.Flags())
	path := filepath.Join(t.TempDir(), "nfd-master.conf")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(settings.LongFlags(append([]string{"-config=" + path}, args...))); err != nil {
		t.Fatal(err)
	}
	return f, retiredWarnings(cmd), cmd
}

// nfdConfig contains all keys of nfd-master's configuration.
const nfdConfig = `
noPublish: true
extraLabelNs: [added.kubernetes.io, "other.example.com"]
denyLabelNs: ["*.denied.com"]
enableTaints: true
labelWhiteList: "^cpu-"
resyncPeriod: "2h"
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}
nfdApiParallelism: 3
informerPageSize: 50
klog: {v: "4"}
restrictions:
  nodeFeatureNamespaceSelector: {matchLabels: {trusted: "yes"}, matchExpressions: [{key: env, operator: In, values: [a, b]}]}
  disableLabels: true
  disableExtendedResources: true
  disableAnnotations: true
  denyNodeFeatureLabels: true
  allowOverwrite: false
`

func TestUnderstandsTheConfigurationOfNFD(t *testing.T) {
	f, _, _ := parse(t, nfdConfig)
	s, warnings, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(warnings, "\n"); len(warnings) != 1 || !strings.Contains(text, "klog") {
		t.Errorf("warnings are %q", warnings)
	}
	c := controllerConfig(s, f.namespace)
	got := map[string]any{
		"dry run": c.NoPublish, "extra": c.Keys().ExtraNamespaces, "deny": c.Keys().DenyNamespaces, "taints": c.Plan().Taints,
		"whitelist": c.Keys().LabelWhiteList.String(), "resync": c.ResyncPeriod, "parallel": c.Parallelism,
		"trusted": c.Sources().Namespaces.Matches(labels.Set{"trusted": "yes", "env": "b"}), "stranger": c.Sources().Namespaces.Matches(labels.Set{"trusted": "yes"}),
		"no labels": c.Withholding().Labels, "no resources": c.Withholding().ExtendedResources, "no annotations": c.Withholding().Annotations,
		"third parties' labels": !c.Sources().IgnoreLabels, "keeps foreign": c.Plan().KeepForeign, "lease": s.LeaderElection.LeaseDuration,
		"page": s.InformerPageSize,
	}
	want := map[string]any{
		"dry run": true, "extra": []string{"added.kubernetes.io", "other.example.com"}, "deny": []string{"*.denied.com"}, "taints": true,
		"whitelist": "^cpu-", "resync": 2 * time.Hour, "parallel": 3, "trusted": true, "stranger": false,
		"no labels": true, "no resources": true, "no annotations": true, "third parties' labels": false, "keeps foreign": true, "lease": 30 * time.Second,
		"page": 50,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDefaultsAreThoseOfNFD(t *testing.T) {
	f, _, _ := parse(t, "")
	s, warnings, err := f.load()
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	c := controllerConfig(s, f.namespace)
	if p := c.Plan(); p.Taints || p.KeepForeign || c.NoPublish || c.Parallelism != 10 || c.ResyncPeriod != time.Hour || c.RemovalGracePeriod != 10*time.Minute {
		t.Errorf("%+v", c)
	}
}

// One key sets the rate of evictions by taints; the others have defaults.
func TestEvictionsHaveNoBoundsUnlessTold(t *testing.T) {
	for file, want := range map[string]settings.NoExecuteBudget{
		"":                                {Share: 0.05, OneZone: true},
		"noExecuteBudget: {every: 10s}\n": {Every: 10 * time.Second, Share: 0.05, OneZone: true},
		"noExecuteBudget: {every: 1m, canary: 1h, share: 0.2, oneZone: false}\n": {Every: time.Minute, Canary: time.Hour, Share: 0.2},
	} {
		f, _, _ := parse(t, file)
		s, warnings, err := f.load()
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		got := s.NoExecuteBudget
		if got != want {
			t.Errorf("%q: %+v, want %+v", file, got, want)
		}
		free, _ := budget.NewGate(got, clock.RealClock{}).Allow("", "", nil)
		if bounded := file != ""; free == bounded {
			t.Errorf("%q: let through at once: %v", file, free)
		}
	}
}

// The chart's probes and monitors refer to these ports.
func TestPortsOfHealthAndMetrics(t *testing.T) {
	f, _, _ := parse(t, "")
	if f.port != 8080 || f.metricsPort != 8081 {
		t.Errorf("health is on port %d and metrics on %d, want 8080 and 8081", f.port, f.metricsPort)
	}
}

func TestFlagsWinOverOptionsAndThoseOverTheFile(t *testing.T) {
	f, _, _ := parse(t, "resyncPeriod: 1m\nenableTaints: true\ndenyLabelNs: [a]\nnfdApiParallelism: 7\n",
		"-options", `{"resyncPeriod":"2m","nfdApiParallelism":8}`, "-resync-period=3m", "-enable-taints=false", "-deny-label-ns", "b, c",
		"-feature-gates=NodeFeatureAPI=true,DisableAutoPrefix=true,NodeFeatureGroupAPI=false")
	s, warnings, err := f.load()
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	c := controllerConfig(s, f.namespace)
	if diff := cmp.Diff([]any{3 * time.Minute, false, []string{"b", "c"}, 8, true, true, false},
		[]any{c.ResyncPeriod, c.EnableTaints, c.Keys().DenyNamespaces, c.Parallelism, c.Keys().DisableAutoPrefix, c.Record().Bare, c.FeatureGates[settings.GateGroups]}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestUnknownKeysAndRetiredFlagsOnlyWarn(t *testing.T) {
	f, retired, _ := parse(t, "noPublish: false\nautoDefaultNs: true\nrestrictions: {disableTaints: true, nosuch: 1}\nenableNodeFeatureApi: true\n",
		"-enable-nodefeature-api", "-featurerules-controller=true", "-resource-labels=a,b", "-ca-file=/x", "-logtostderr")
	if len(retired) != 5 {
		t.Errorf("flags: %q", retired)
	}
	_, warnings, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(warnings, "\n")
	for _, want := range []string{"autoDefaultNs: has no effect: use the feature gate DisableAutoPrefix", "restrictions.disableTaints: has no effect: use enableTaints", ":3:37: restrictions.nosuch: unknown key is ignored", "enableNodeFeatureApi"} {
		if !strings.Contains(text, want) {
			t.Errorf("warnings are\n%s\nwhich lack %q", text, want)
		}
	}
}

// TestAnInstanceRemovesNoStartupTaint: nothing would remove the taint, since only the controller without an instance name writes the
// condition that it waits for.
func TestAnInstanceRemovesNoStartupTaint(t *testing.T) {
	f, _, _ := parse(t, "startupTaint: example.com/pending\n", "-instance=blue")
	_, _, err := f.load()
	if err == nil || !strings.Contains(err.Error(), `startupTaint "example.com/pending"`) || !strings.Contains(err.Error(), "--instance=blue") {
		t.Errorf("got %v", err)
	}
	f, _, _ = parse(t, "startupTaint: example.com/pending\n")
	if _, _, err := f.load(); err != nil {
		t.Error(err)
	}
}

func TestAMissingFileIsEmptyOnlyWhereItIsTheDefault(t *testing.T) {
	f := &settings.Flags{File: filepath.Join(t.TempDir(), "none")}
	if _, _, err := f.Load(); err == nil {
		t.Error("a file that was asked for may be missing")
	}
	if f.File = settings.DefaultFile; true {
		if _, err := os.Stat(settings.DefaultFile); err == nil {
			t.Skip("there is one on this machine")
		}
		if _, _, err := f.Load(); err != nil {
			t.Error(err)
		}
	}
}

// TestALossTaintNeedsAPace: a feature that all nodes lose would close all of them at once.
func TestALossTaintNeedsAPace(t *testing.T) {
	const pace, gate = "noExecuteBudget: {every: 5m}\n", "featureGates: {FeatureScheduling: true}\n"
	for file, want := range map[string]string{
		"lossTaint: example.com/lost:NoExecute\n" + pace + gate:                                  "",
		"lossTaint: example.com/lost:NoSchedule\n" + pace + gate:                                 "",
		"lossTaint: example.com/lost:NoExecute\n" + gate:                                         "set noExecuteBudget.every",
		"lossTaint: example.com/lost:NoExecute\n" + pace:                                         "set --feature-gates=FeatureScheduling=true",
		"lossTaint: example.com/lost=1:NoExecute\n" + pace + gate:                                "use KEY:NoExecute or KEY:NoSchedule",
		"lossTaint: example.com/lost:PreferNoSchedule\n" + pace + gate:                           "use KEY:NoExecute or KEY:NoSchedule",
		"lossTaint: lost:NoExecute\n" + pace + gate:                                              "has no namespace",
		"lossTaint: example.com/a:NoExecute\nfailTaint: example.com/a:NoExecute\n" + pace + gate: "use another key",
	} {
		f, _, _ := parse(t, file)
		s, _, err := f.load()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
		if err == nil && (s.Desired().LossTaint == nil || s.Withholding().Losses) {
			t.Errorf("%q: got no taint", file)
		}
	}
}
