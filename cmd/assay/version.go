package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/internal/build"
)

// versionInfo describes the build of the program, for bug reports.
type versionInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func newVersion() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit and platform of this build",
		Example: `  assay version
  assay version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "text" {
				fmt.Fprintln(cmd.OutOrStdout(), "assay version", build.String())
				return nil
			}
			return printer.Object(cmd.OutOrStdout(), output, versionInfo{build.Version(), build.Commit(), runtime.Version(), build.Platform()})
		},
	}
	printer.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}
