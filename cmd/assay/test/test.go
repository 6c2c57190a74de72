// Package test is the verb test: it runs users' tests of their rules.
package test

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/suites"
	"github.com/assay-project/assay/rules/suite"
)

// NewCommand returns assay test.
func NewCommand() *cobra.Command {
	f := &suites.Options{}
	cmd := &cobra.Command{
		Use:   "test DIRECTORY…",
		Short: "Run tests of your own rules",
		Long: `Run tests of your own rules.

A directory with a rule.yaml is a test:
  rule.yaml     NodeFeatureRules
  facts.yaml    NodeFeatures of one node, or bare features
  outcome.yaml  the complete expected outputs; assay test --update writes it
  errors.txt    substrings of the expected errors, a line each
  options.yaml  settings: strict, defaultScope, nodeScope, mask, ignoreFail, featureSources, node, nodeLabels

A file NAME.test.yaml is a table of tests. Each test lists only the outputs that it checks; null means that the output must be absent:
  rules: [../gpu.yaml]
  tests:
  - name: an A100 is labeled
    features: [a100.yaml]
    expect:
      labels: {example.com/gpu: a100, example.com/old: null}
      matched: [gpu/a100]
      notMatched: [gpu/h100]

Exit codes: 0 all passed; 1 some failed; 2 no tests were found.`,
		Example: `  assay test tests/
  assay test --update tests/a100
  assay test -o junit tests/ > junit.xml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return test(f, cmd, args) },
	}
	cmd.Flags().BoolVar(&f.Update, "update", false, "write the actual results as the expected ones; review the diff")
	cmd.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "also list the tests that passed")
	cmd.Flags().StringVar(&f.Pattern, "run", "", "run only tests whose name contains this string")
	printer.OutputFlag(cmd, &f.Output, "text", "json", "junit")
	return cmd
}

func test(f *suites.Options, cmd *cobra.Command, dirs []string) error {
	var tests []*suite.Test
	for _, dir := range dirs {
		more, err := suite.Find(dir)
		if err != nil {
			return err
		}
		for _, t := range more {
			if strings.Contains(t.Name, f.Pattern) {
				tests = append(tests, t)
			}
		}
	}
	if len(tests) == 0 {
		return fmt.Errorf("no tests found in %s; see assay test --help for the form of a test", strings.Join(dirs, ", "))
	}
	return f.Run(cmd, tests)
}
