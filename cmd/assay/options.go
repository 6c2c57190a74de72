package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newOptions returns the command that lists the shared flags, as kubectl options does.
func newOptions() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "List the flags of all verbs that read a cluster or evaluate rules",
		Example: "  assay options",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Verbs that read a cluster take:\n\n%s\n", clusterFlags().FlagUsages())
			fmt.Fprintf(w, "Verbs that evaluate rules take the settings of the controller:\n\n%s", controllerFlags().FlagUsages())
			return nil
		},
	}
}

// groupFlags hides shared flags in the help of each command, as kubectl does.
func groupFlags(root *cobra.Command) {
	cobra.AddTemplateFunc("ownFlags", func(c *cobra.Command) string { return ownFlags(c).FlagUsages() })
	cobra.AddTemplateFunc("sharesFlags", sharesFlags)
	const all = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	text := strings.Replace(root.UsageTemplate(), all, "{{ownFlags . | trimTrailingWhitespaces}}", 1)
	root.SetUsageTemplate(text + `{{if sharesFlags .}}
Use "{{.Root.DisplayName}} options" for a list of the flags that choose a cluster and of the settings of the controller.
{{end}}`)
}

// ownFlags returns the flags of a command without the shared flags.
func ownFlags(c *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !shared(f) {
			set.AddFlag(f)
		}
	})
	return set
}

func sharesFlags(c *cobra.Command) bool {
	shares := false
	c.Flags().VisitAll(func(f *pflag.Flag) { shares = shares || shared(f) })
	return shares
}
