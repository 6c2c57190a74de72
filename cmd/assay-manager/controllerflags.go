package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-project/assay/settings"
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
	f.ruleFlags.register(flags, forController)
	flags.BoolVar(&f.leaderElection, "enable-leader-election", false, "elect a leader, so that only one replica writes at a time")

	flags.BoolVar(&f.prune, "prune", false, "remove all labels, annotations, extended resources, taints and conditions of this controller from all Nodes, then exit; the command prune also deletes its objects")
	retire(flags)
}

// load reads the configuration file and applies the flags.
func (f *controllerFlags) load() (*settings.Settings, []string, error) {
	s, warnings, err := f.Load()
	if err == nil {
		err = s.CheckLosses()
	}
	return s, warnings, err
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
