// Command assay-manager is the part of Assay that runs in the control plane: controller, webhook and extender, each a
// subcommand, so that one image serves all and each runs with its own permissions.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/internal/build"
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
	cmd.SetArgs(longFlags(os.Args[1:]))
	logs := &logging{}
	logs.register(cmd.PersistentFlags())
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		logs.use(cmd.ErrOrStderr())
		limitMemory()
	}
	cmd.AddCommand(newController(), newWebhook(), newExtender(), newPrune(), newVerify())
	return cmd
}

// longFlags gives flags of NFD's form, -enable-taints, the two dashes that this parser wants: charts and manifests that were
// written for NFD pass them so.
func longFlags(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && arg != "-h" {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}
