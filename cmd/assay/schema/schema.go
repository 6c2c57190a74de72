// Package schema is the verb schema: it prints JSON Schemas for editors.
package schema

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules/schema"
	"github.com/assay-project/assay/settings"
)

// NewCommand returns assay schema.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of a kind, for editors",
		Long: `Print the JSON Schema of a kind, for editors and catalogs. Without a kind, list the kinds.

The schema completes and checks fields, operators, features, conditions and actions while you type. It does not replace
assay lint, which also checks expressions, templates and values.`,
		Example: `  assay schema NodeFeatureRule > nodefeaturerule.schema.json
  assay schema`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				kinds, err := schema.Kinds(settings.Schema())
				fmt.Fprintln(cmd.OutOrStdout(), strings.Join(kinds, "\n"))
				return err
			}
			data, err := schema.Of(args[0], settings.Schema())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", data)
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			kinds, _ := schema.Kinds(settings.Schema())
			return kinds, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
