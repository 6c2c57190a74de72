// Command assay-manager runs the control plane of Assay. Controller, webhook and extender are subcommands of one image with
// separate permissions.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/settings"
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "assay-manager:", err)
		os.Exit(1)
	}
}

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
	}
	cmd.AddCommand(newController(), newWebhook(), newExtender(), newPrune(), newVerify())
	return cmd
}
