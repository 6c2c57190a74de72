package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/assay-project/assay/settings"
	"github.com/assay-project/assay/settings/settingstest"
)

// ofTheManager are settings that the controller needs before it has a configuration: see controllerFlags.manage.
var ofTheManager = []string{"leaderElection.leaseDuration", "leaderElection.renewDeadline", "leaderElection.retryPeriod", "informerPageSize"}

// TestEachSettingIsInForce gives each setting a value other than its default to all subcommands. The configuration of the controllers must
// change, the extender must have the same one, and the webhook must review with what the controllers evaluate.
func TestEachSettingIsInForce(t *testing.T) {
	before := controllerConfig(settings.Default(), "ns")
	for _, o := range settingstest.Others() {
		t.Run(o.Name, func(t *testing.T) {
			var args []string
			if o.Flag != "" {
				args = []string{o.Flag}
			}
			f, _, _ := parse(t, o.File, args...)
			s, _, err := f.load()
			if err != nil {
				t.Fatal(err)
			}
			config := controllerConfig(s, "ns")
			if same := reflect.DeepEqual(before, config); same != slices.Contains(ofTheManager, o.Name) {
				t.Errorf("the configuration of the controllers is that of the defaults: %t", same)
			}
			w, e := &webhookFlags{}, &extenderFlags{}
			for _, register := range []func(*cobra.Command){
				func(c *cobra.Command) { w.register(c.Flags()) }, func(c *cobra.Command) { e.register(c.Flags()) },
			} {
				cmd := &cobra.Command{}
				register(cmd)
				if name, _, _ := strings.Cut(o.Flag, "="); name != "" && cmd.Flags().Lookup(strings.Trim(name, "-")) == nil {
					return // of the controller only
				}
				if err := cmd.ParseFlags(append([]string{"--config=" + f.File}, args...)); err != nil {
					t.Fatal(err)
				}
			}
			if s, _, err := e.Load(); err != nil || !reflect.DeepEqual(config, controllerConfig(s, "ns")) {
				t.Errorf("the extender has another configuration than the controller (%v)", err)
			}
			review, err := w.options()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(config.Withholding(), review.Known.Withholding); diff != "" {
				t.Errorf("what is withheld (-controller +webhook):\n%s", diff)
			}
			if !reflect.DeepEqual(config.Rules, review.Known.Rules) || config.DefaultTemplate != review.Known.DefaultTemplate {
				t.Errorf("the webhook compiles with %+v and the template %q", review.Known.Rules, review.Known.DefaultTemplate)
			}
		})
	}
}
