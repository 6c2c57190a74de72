package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/cmd/assay/report"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/suite"
)

type testFlags struct {
	output  string
	update  bool
	verbose bool
	run     string
}

func newTest() *cobra.Command {
	f := &testFlags{}
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

Exit codes: 0 all passed; 1 some failed; 2 there are no tests.`,
		Example: `  assay test tests/
  assay test --update tests/a100
  assay test -o junit tests/ > junit.xml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.test(cmd, args) },
	}
	cmd.Flags().BoolVar(&f.update, "update", false, "write the actual results as the expected ones; review the diff")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "also list the tests that passed")
	cmd.Flags().StringVar(&f.run, "run", "", "run only tests whose name contains this string")
	outputFlag(cmd, &f.output, "text", "json", "junit")
	return cmd
}

func (f *testFlags) test(cmd *cobra.Command, dirs []string) error {
	var tests []*suite.Test
	for _, dir := range dirs {
		more, err := suite.Find(dir)
		if err != nil {
			return err
		}
		for _, t := range more {
			if strings.Contains(t.Name, f.run) {
				tests = append(tests, t)
			}
		}
	}
	if len(tests) == 0 {
		return fmt.Errorf("no tests found in %s; see assay test --help for the form of a test", strings.Join(dirs, ", "))
	}
	return f.runTests(cmd, tests)
}

// runTests runs tests and prints their results.
func (f *testFlags) runTests(cmd *cobra.Command, tests []*suite.Test) error {
	runner := suite.NewRunner()
	results := make([]suite.Result, len(tests))
	input.Each(len(tests), func(i int) { results[i] = runner.Run(tests[i], f.update) })
	failed := 0
	for _, r := range results {
		if r.Failure != "" {
			failed++
		}
	}
	if err := f.print(cmd.OutOrStdout(), results, failed); err != nil {
		return err
	}
	if failed > 0 {
		return errFound
	}
	return nil
}

func (f *testFlags) print(w io.Writer, results []suite.Result, failed int) error {
	switch f.output {
	case "json":
		type one struct {
			Name    string `json:"name"`
			Passed  bool   `json:"passed"`
			Failure string `json:"failure,omitempty"`
		}
		out := make([]one, len(results))
		for i, r := range results {
			out[i] = one{r.Test.Name, r.Failure == "", r.Failure}
		}
		return printObject(w, "json", out)
	case "junit":
		s := &report.Suites{}
		for _, r := range results {
			c := report.Case{Name: r.Test.Name, Class: "assay.test"}
			if r.Failure != "" {
				c.Failure = &report.Failure{Type: "outcome", Message: "the result differs from the expected one", Text: r.Failure}
			}
			if n := len(s.Suites); n == 0 || s.Suites[n-1].Name != r.Test.File {
				s.Suites = append(s.Suites, report.Suite{Name: r.Test.File})
			}
			last := &s.Suites[len(s.Suites)-1]
			last.Cases = append(last.Cases, c)
		}
		return s.Write(w)
	}
	f.printText(w, results, failed)
	return nil
}

func (f *testFlags) printText(w io.Writer, results []suite.Result, failed int) {
	s := styleOf(w)
	for _, r := range results {
		switch {
		case r.Failure != "":
			fmt.Fprintf(w, "%s  %s\n", s.bad("FAIL"), printable(r.Test.Name))
			for _, line := range strings.Split(r.Failure, "\n") {
				if strings.HasPrefix(line, "+") {
					line = s.good(printable(line))
				} else if strings.HasPrefix(line, "-") {
					line = s.bad(printable(line))
				}
				fmt.Fprintf(w, "      %s\n", line)
			}
		case r.Updated:
			fmt.Fprintf(w, "%s   %s\n", s.warn("NEW"), printable(r.Test.File))
		case f.verbose:
			fmt.Fprintf(w, "%s  %s\n", s.good("pass"), printable(r.Test.Name))
		}
	}
	if failed > 0 {
		fmt.Fprintf(w, "%s of %s failed (- expected, + actual)\n", fmt.Sprint(failed), clip.Count(len(results), "test"))
		return
	}
	fmt.Fprintf(w, "%s passed\n", clip.Count(len(results), "test"))
}
