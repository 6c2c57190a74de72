package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/settings"
	"github.com/assay-project/assay/settings/settingstest"
)

// readDirectly are settings that the programs read by themselves: they change neither rules, inputs nor decisions.
var readDirectly = []string{
	"leaderElection.leaseDuration", "leaderElection.renewDeadline", "leaderElection.retryPeriod", "informerPageSize", "nfdApiParallelism", "resyncPeriod",
	"removalBudget.nodes", "removalBudget.share", "removalBudget.window", "removalBudget.hold",
	"healthBudget.nodes", "healthBudget.share", "healthBudget.window",
	"noExecuteBudget.every", "noExecuteBudget.canary", "noExecuteBudget.share", "noExecuteBudget.oneZone",
	"nodeShapeLabels", "gcInterval", "gcGracePeriod", "gcTopologies", "featureGates",
}

// TestEachSettingIsInForce gives each setting a value other than its default to all subcommands. The rules, inputs or decisions of the
// controllers must change, the extender must have the same settings, and the webhook must review with what the controllers evaluate.
func TestEachSettingIsInForce(t *testing.T) {
	effects := func(s *settings.Settings) []any {
		c := controllerConfig(s, "ns")
		return []any{c.Assembly(), c.Inputs(nil), decide.SettingsOf(s)}
	}
	before := effects(settings.Default())
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
			if same := reflect.DeepEqual(before, effects(s)); same != slices.Contains(readDirectly, o.Key) {
				t.Errorf("rules, inputs and decisions are those of the defaults: got %t, want %t", same, !same)
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
			if other, _, err := e.Load(); err != nil || !other.Equal(s) {
				t.Errorf("the extender has other settings than the controller (%v)", err)
			}
			review, err := w.options()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.Withholding(), review.Known.Withholding); diff != "" {
				t.Errorf("what is withheld (-controller +webhook):\n%s", diff)
			}
			if !reflect.DeepEqual(s.Rules(), review.Known.Rules) || s.DefaultTemplate != review.Known.DefaultTemplate {
				t.Errorf("the webhook compiles with %+v and the template %q", review.Known.Rules, review.Known.DefaultTemplate)
			}
		})
	}
}
