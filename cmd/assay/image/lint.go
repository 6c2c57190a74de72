package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/manifest"
)

type lintOptions struct {
	output         string
	quiet          bool
	failOnWarnings bool
}

func newLint() *cobra.Command {
	f := &lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint FILE|-…",
		Short: "Check files with the compatibility of an image for errors, and show the line and what to write instead",
		Long: `Check files with the compatibility of an image for errors, and show the line and what to write instead.

Errors are wrong types and unknown fields, versions and operators, invalid regular expressions, terms on rule.matched without a var of an
earlier rule of the set, and more sets, rules or bytes than are allowed. Warnings are about features and elements that no source publishes,
and about sets that no node or every node meets.

Exit codes: 0 no errors; 1 errors (with --fail-on-warnings: or warnings); 2 a file could not be read.`,
		Example: `  assay image lint compat.yaml
  assay image lint -o github compat.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no input: pass a FILE or - for stdin")
			}
			return nil
		},
		RunE: f.run,
	}
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not print warnings")
	cmd.Flags().BoolVar(&f.failOnWarnings, "fail-on-warnings", false, "exit with 1 if there are warnings")
	cmd.ValidArgsFunction = cli.CompleteYAML
	printer.OutputFlag(cmd, &f.output, "text", "json", "sarif", "junit", "github")
	return cmd
}

func (f *lintOptions) run(cmd *cobra.Command, args []string) error {
	var files []*manifest.File
	var list []report.Finding
	known, sets := reviewKnown(), 0
	for _, name := range args {
		data, err := input.Read(name, cmd.InOrStdin())
		if err != nil {
			return err
		}
		d := imagespec.Parse(input.Name(name), data, known)
		sets += len(d.Spec.Compatibilities)
		files, list = append(files, d.File), append(list, findingsOf(d)...)
	}
	if f.quiet {
		list = onlyErrors(list)
	}
	if err := f.print(cmd, files, sets, list); err != nil {
		return err
	}
	if report.Errors(list) > 0 || f.failOnWarnings && len(list) > 0 {
		return cli.ErrFound
	}
	return nil
}

func (f *lintOptions) print(cmd *cobra.Command, files []*manifest.File, sets int, list []report.Finding) error {
	w := cmd.OutOrStdout()
	if written, err := report.Write(w, f.output, build.Version(), files, list); written {
		return err
	}
	byName := map[string]*manifest.File{}
	for _, file := range files {
		byName[file.Name] = file
	}
	s := printer.StyleOf(w)
	for _, finding := range list {
		printer.Finding(w, s, byName[finding.File], finding, true)
	}
	broken := report.Errors(list)
	result := s.Good("no errors found")
	if len(list) > 0 {
		result = clip.Count(broken, "error") + ", " + clip.Count(len(list)-broken, "warning")
	}
	fmt.Fprintf(w, "%s in %s: %s\n", clip.Count(sets, "set"), clip.Count(len(files), "file"), result)
	return nil
}
