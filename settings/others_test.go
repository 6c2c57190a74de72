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
	byFile, byFlag := map[string]*settings.Settings{}, map[string]*settings.Settings{}
	for _, o := range settingstest.Others() {
		s, f := settings.Default(), settings.Flags{}
		if _, err := s.Read("f", []byte(o.File)); err != nil {
			t.Fatal(o.Name, err)
		}
		if o.Flag == "" {
			byFile[o.Key] = s
			continue
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(flags, settings.Default(), func(settings.Setting) bool { return true })
		if err := flags.Parse([]string{o.Flag}); err != nil {
			t.Fatal(o.Flag, err)
		}
		if _, err := f.Change(s); err != nil {
			t.Fatal(o.Flag, err)
		}
		if o.Key != "" {
			byFlag[o.Key] = s
		}
	}
	if len(byFlag) == 0 {
		t.Error("got no flags that have keys")
	}
	for key, got := range byFlag {
		if want := byFile[key]; !want.Equal(got) {
			t.Errorf("the flag of %s: got %+v, want %+v", key, got, want)
		}
	}
}
