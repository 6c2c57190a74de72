// Command assay-manager runs the control plane of Assay. Controller, webhook and extender are subcommands of one image with
// separate permissions.
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
		limitMemory(cmd.Name())
	}
	cmd.AddCommand(newController(), newWebhook(), newExtender(), newPrune(), newVerify())
	return cmd
}

// longFlags adds a second dash to flags of NFD's form, -enable-taints: this parser requires two dashes, and charts and manifests
// for NFD use one.
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
