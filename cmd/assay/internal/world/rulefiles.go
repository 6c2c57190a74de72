package world

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// RuleFiles holds rules that were read from files.
type RuleFiles struct {
	Sets     []*rules.RuleSet
	files    []*manifest.File
	findings []report.Finding
}

// LoadRules reads and compiles rules. It does not evaluate rules with errors, because without the invalid parts they could match
// more nodes; it prints the errors.
func LoadRules(cmd *cobra.Command, names []string, opt rules.Options) (*RuleFiles, error) {
	paths, err := input.Paths(names)
	if err != nil {
		return nil, err
	}
	out := &RuleFiles{files: input.Manifests(paths, cmd.InOrStdin())}
	checker := check.New(review.Known{Rules: opt}, out.files...)
	checker.Files = true
	for _, file := range out.files {
		problems, sets := checker.CustomRules(file)
		if !check.Configures(file) { // otherwise its reader has reported them
			problems = append(problems, file.Problems...)
		}
		out.Sets = append(out.Sets, sets...)
		for _, d := range file.Documents {
			if d.Kind != manifest.KindRule {
				continue
			}
			found, set := checker.Compile(d)
			out.Sets, problems = append(out.Sets, set), append(problems, found...)
		}
		for _, p := range problems {
			out.findings = append(out.findings, report.Finding{File: file.Name, Problem: p})
		}
	}
	report.Sort(out.findings)
	if report.Errors(out.findings) > 0 {
		out.Print(cmd.ErrOrStderr(), true)
		return nil, cli.ErrFound
	}
	if len(out.Sets) == 0 {
		return nil, noRules(names)
	}
	return out, nil
}

// noRules returns the error about files without rules.
func noRules(files []string) error {
	return fmt.Errorf("%s: no rules found: expected NodeFeatureRules, or a configuration of the worker with sources.custom", strings.Join(files, ", "))
}

// Print prints the problems of the rules: errors as in lint, warnings on one line each.
func (r *RuleFiles) Print(w io.Writer, quiet bool) {
	byName := map[string]*manifest.File{}
	for _, f := range r.files {
		byName[f.Name] = f
	}
	s := printer.StyleOf(w)
	for _, f := range r.findings {
		if f.Severity == manifest.Error || !quiet {
			printer.Finding(w, s, byName[f.File], f, f.Severity == manifest.Error)
		}
	}
}
