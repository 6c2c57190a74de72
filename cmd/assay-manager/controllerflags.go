package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/config/managerconfig"
)

// controllerFlags are the flags of the controller. Flags that also exist in NFD have the same names.
type controllerFlags struct {
	processFlags
	ruleFlags
	leaderElection bool
	prune          bool
}

func (f *controllerFlags) register(flags *pflag.FlagSet) {
	f.processFlags.register(flags)
	f.ruleFlags.register(flags)
	flags.BoolVar(&f.leaderElection, "enable-leader-election", false, "elect a leader, so that only one replica writes at a time")

	flags.BoolVar(&f.prune, "prune", false, "remove all labels, annotations, extended resources and taints of this controller from all Nodes, then exit; the command prune also removes NodeFeatures")

	f.toggle(flags, "no-publish", "evaluate rules and report status without writing to Nodes", toBool(func(s *managerconfig.Settings) *bool { return &s.NoPublish }))
	f.setting(flags, "resync-period", "interval at which all nodes are evaluated again without a change; 0: never (default 1h)",
		toDuration(func(s *managerconfig.Settings) *time.Duration { return &s.ResyncPeriod }))
	f.setting(flags, "gc-interval", "interval at which NodeFeatures without a Node are deleted; 0: never (default 1h)",
		toDuration(func(s *managerconfig.Settings) *time.Duration { return &s.GcInterval }))
	f.setting(flags, "nfd-api-parallelism", "maximum number of nodes evaluated at once (default 10)", func(s *managerconfig.Settings, text string) (err error) {
		s.Parallelism, err = strconv.Atoi(text)
		return err
	})
	f.setting(flags, "informer-page-size", "page size for listing NodeFeatures from API servers before 1.34; 0: no paging (default 0)",
		func(s *managerconfig.Settings, text string) (err error) {
			s.InformerPageSize, err = strconv.Atoi(text)
			return err
		})
	f.setting(flags, "fail-taint", "taint of nodes that the action fail keeps unchanged: KEY=VALUE:EFFECT",
		toText(func(s *managerconfig.Settings) *string { return &s.FailTaint }))
	f.toggle(flags, "features-ready", "write the condition assay.dev/FeaturesReady on Nodes (default true)",
		toBool(func(s *managerconfig.Settings) *bool { return &s.FeaturesReady }))
	f.setting(flags, "fail-open-after", "time after the creation of a Node at which the start-up taint is removed in any case (default 10m)",
		toDuration(func(s *managerconfig.Settings) *time.Duration { return &s.FailOpenAfter }))
	retire(flags)
}

// load also checks what lossTaint needs. Other commands may not have these settings.
func (f *controllerFlags) load() (*managerconfig.Settings, []string, error) {
	s, warnings, err := f.ruleFlags.load()
	switch {
	case err != nil || s.LossTaint == "":
	case !s.FeatureGates[managerconfig.GateScheduling]:
		err = fmt.Errorf("lossTaint %q: the controller does not watch pods; set --feature-gates=%s=true", s.LossTaint, managerconfig.GateScheduling)
	case s.NoExecuteBudget.Every <= 0:
		err = fmt.Errorf("lossTaint %q: a feature that all nodes lose would taint all of them at once; set noExecuteBudget.every, for example to 5m", s.LossTaint)
	}
	return s, warnings, err
}

func toDuration(at func(*managerconfig.Settings) *time.Duration) func(*managerconfig.Settings, string) error {
	return func(s *managerconfig.Settings, text string) (err error) {
		*at(s), err = config.Duration(text)
		return err
	}
}

// retired maps flags of current and past NFD versions that have no effect here to the reason. Existing manifests still use them.
var retired = map[string]string{
	"enable-nodefeature-api":  "workers always publish NodeFeatures",
	"featurerules-controller": "rules are always evaluated",
	"crd-controller":          "rules are always evaluated",
	"resource-labels":         "write a rule with extendedResources",
	"ca-file":                 "workers talk to the API server only",
	"cert-file":               "workers talk to the API server only",
	"key-file":                "workers talk to the API server only",
	"verify-node-name":        "workers talk to the API server only",
	"grpc-health":             "health is served on --port",
	"metrics":                 "use --metrics-port",
	"logtostderr":             "the log always goes to standard error",
	"alsologtostderr":         "the log always goes to standard error",
	"stderrthreshold":         "the log always goes to standard error",
	"log_dir":                 "the log always goes to standard error",
	"log_file":                "the log always goes to standard error",
	"log_file_max_size":       "the log always goes to standard error",
	"log_backtrace_at":        "use -v",
	"vmodule":                 "use -v",
	"add_dir_header":          "the format of the log is set with --log-format",
	"skip_headers":            "the format of the log is set with --log-format",
	"skip_log_headers":        "the format of the log is set with --log-format",
	"one_output":              "the format of the log is set with --log-format",
}

func retire(flags *pflag.FlagSet) {
	for _, name := range slices.Sorted(maps.Keys(retired)) {
		flags.String(name, "", retired[name])
		f := flags.Lookup(name)
		f.Hidden, f.NoOptDefVal = true, "true"
	}
}

// retiredWarnings returns a warning with the reason for each retired flag that is set.
func retiredWarnings(cmd *cobra.Command) (warnings []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if why, ok := retired[f.Name]; ok {
			warnings = append(warnings, fmt.Sprintf("flag -%s has no effect: %s", f.Name, why))
		}
	})
	return warnings
}
