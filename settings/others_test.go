package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/assay-project/assay/settings"
	"github.com/assay-project/assay/settings/settingstest"
)

// TestEachSettingTakesAnotherValue reads another value of each setting, from a file and from a flag.
func TestEachSettingTakesAnotherValue(t *testing.T) {
	for _, o := range settingstest.Others() {
		t.Run(o.Name, func(t *testing.T) {
			f := settings.Flags{File: filepath.Join(t.TempDir(), "nfd-master.conf")}
			if err := os.WriteFile(f.File, []byte(o.File), 0o600); err != nil {
				t.Fatal(err)
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Register(flags, settings.Default(), func(settings.Setting) bool { return true })
			if o.Flag != "" {
				if err := flags.Parse([]string{o.Flag}); err != nil {
					t.Fatal(err)
				}
			}
			s, warnings, err := f.Load()
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if s.Equal(settings.Default()) {
				t.Errorf("the settings are the default ones with %s%s", o.File, o.Flag)
			}
		})
	}
}

// TestFlagsMeanWhatTheirKeysMean gives each flag the value that its key has in a file.
func TestFlagsMeanWhatTheirKeysMean(t *testing.T) {
	table := map[string]struct{ value, file string }{
		"no-publish": {"true", "noPublish: true"}, "extra-label-ns": {"a, b", "extraLabelNs: [a, b]"}, "deny-label-ns": {"a", "denyLabelNs: [a]"},
		"enable-taints": {"true", "enableTaints: true"}, "label-whitelist": {"^a", "labelWhiteList: ^a"}, "resync-period": {"5m", "resyncPeriod: 5m"},
		"nfd-api-parallelism": {"3", "nfdApiParallelism: 3"}, "informer-page-size": {"5", "informerPageSize: 5"},
		"removal-grace-period": {"1m", "removalGracePeriod: 1m"}, "mask-secrets": {"never", "maskSecrets: never"},
		"default-scope": {"a", "defaultScope: a"}, "default-node-scope": {"a", "defaultNodeScope: a"}, "default-template": {"a", "defaultTemplate: a"},
		"built-in-rules": {"/a", "builtInRules: /a"}, "allow-fail": {"false", "allowFail: false"},
		"fail-taint": {"a.io/b=c:NoSchedule", "failTaint: a.io/b=c:NoSchedule"}, "loss-taint": {"a.io/b:NoSchedule", "lossTaint: a.io/b:NoSchedule"},
		"features-ready": {"false", "featuresReady: false"}, "startup-taint": {"a.io/b", "startupTaint: a.io/b"},
		"fail-open-after": {"1m", "failOpenAfter: 1m"}, "gc-interval": {"1m", "gcInterval: 1m"}, "gc-topologies": {"true", "gcTopologies: true"}, "feature-sources": {"^a", "featureSources: ^a"},
		"feature-gates":       {"FeatureScheduling=true", "featureGates: {FeatureScheduling: true}"},
		"disable-auto-prefix": {"true", "featureGates: {DisableAutoPrefix: true}"},
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&settings.Flags{}).Register(flags, settings.Default(), func(s settings.Setting) bool { return s.Key != "" })
	flags.VisitAll(func(f *pflag.Flag) {
		if _, ok := table[f.Name]; !ok {
			t.Errorf("--%s is not in the table", f.Name)
		}
	})
	for flag, tc := range table {
		want, got := settings.Default(), settings.Default()
		if _, err := want.Read("f", []byte(tc.file)); err != nil {
			t.Fatal(flag, err)
		}
		f := settings.Flags{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(flags, settings.Default(), func(settings.Setting) bool { return true })
		if err := flags.Parse([]string{"--" + flag + "=" + tc.value}); err != nil {
			t.Fatal(flag, err)
		}
		if _, err := f.Change(got); err != nil || !want.Equal(got) || got.Equal(settings.Default()) {
			t.Errorf("--%s=%s is %+v, %v, want %+v", flag, tc.value, got, err, want)
		}
	}
}
