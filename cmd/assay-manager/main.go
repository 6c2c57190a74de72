// Command assay-manager runs the control plane of Assay. Controller, webhook and extender are subcommands of one image with
// separate permissions.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/settings"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "assay-manager:", err)
		os.Exit(1)
	}
}

// buildInfo tells the programs apart, and from those of Node Feature Discovery, whose names the controller reports too.
var buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "assay_build_info", Help: "Always 1, with the version of the program.",
}, []string{"component", "version", "goversion"})

func init() { ctrlmetrics.Registry.MustRegister(buildInfo) }

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "assay-manager",
		Short:         "Convert node features to labels, taints, extended resources and scheduling decisions",
		Version:       build.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetArgs(settings.LongFlags(os.Args[1:]))
	logs := &logging{}
	logs.register(cmd.PersistentFlags())
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		logs.use(cmd.ErrOrStderr())
		limitMemory(cmd.Name())
		buildInfo.WithLabelValues(cmd.Name(), build.Version(), runtime.Version()).Set(1)
	}
	cmd.AddCommand(newController(), newWebhook(), newExtender(), newPrune(), newVerify(), newApplyDefinitions())
	return cmd
}
