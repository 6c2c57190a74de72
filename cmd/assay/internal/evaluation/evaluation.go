// Package evaluation prints the outcome of rules for a node, and why it is so.
package evaluation

import (
	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules"
)

// PrintFiles evaluates rules for a node and prints the result. It returns an error if a rule failed.
func PrintFiles(cmd *cobra.Command, set *world.RuleFiles, in rules.Input, opt rules.Options, format string, how Options) error {
	return Print(cmd, rules.Link(opt, set.Sets...), in, format, how)
}

// Print evaluates a program for a node and prints the result. It returns an error if a rule failed.
func Print(cmd *cobra.Command, program *rules.Program, in rules.Input, format string, how Options) error {
	outcome := program.Eval(in)
	if printer.IsObject(format) {
		if err := printer.Object(cmd.OutOrStdout(), format, NewResult(outcome, how.Taints)); err != nil {
			return err
		}
	} else {
		printTrace(cmd.OutOrStdout(), program.Trace(in), outcome, how)
	}
	for _, r := range outcome.Rules() {
		if r.Err != nil {
			return cli.ErrFound
		}
	}
	return nil
}
