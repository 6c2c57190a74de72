// Package suites runs users' tests of their rules, and prints the results.
package suites

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/suite"
)

// Options select the tests that run, and how their results are printed.
type Options struct {
	Output  string
	Update  bool
	Verbose bool
	Pattern string
}

// Run runs tests and prints their results.
func (f *Options) Run(cmd *cobra.Command, tests []*suite.Test) error {
	runner := suite.NewRunner()
	results := make([]suite.Result, len(tests))
	input.Each(len(tests), func(i int) { results[i] = runner.Run(tests[i], f.Update) })
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
		return cli.ErrFound
	}
	return nil
}

func (f *Options) print(w io.Writer, results []suite.Result, failed int) error {
	switch f.Output {
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
		return printer.Object(w, "json", out)
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

func (f *Options) printText(w io.Writer, results []suite.Result, failed int) {
	s := printer.StyleOf(w)
	for _, r := range results {
		switch {
		case r.Failure != "":
			fmt.Fprintf(w, "%s  %s\n", s.Bad("FAIL"), clip.Printable(r.Test.Name))
			for _, line := range strings.Split(r.Failure, "\n") {
				if strings.HasPrefix(line, "+") {
					line = s.Good(clip.Printable(line))
				} else if strings.HasPrefix(line, "-") {
					line = s.Bad(clip.Printable(line))
				}
				fmt.Fprintf(w, "      %s\n", line)
			}
		case r.Updated:
			fmt.Fprintf(w, "%s   %s\n", s.Warn("NEW"), clip.Printable(r.Test.File))
		case f.Verbose:
			fmt.Fprintf(w, "%s  %s\n", s.Good("pass"), clip.Printable(r.Test.Name))
		}
	}
	if failed > 0 {
		fmt.Fprintf(w, "%s of %s failed (- expected, + actual)\n", fmt.Sprint(failed), clip.Count(len(results), "test"))
		return
	}
	fmt.Fprintf(w, "%s passed\n", clip.Count(len(results), "test"))
}
