package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-project/assay/cmd/assay/report"
	"github.com/assay-project/assay/rules/manifest"
)

// printFinding prints a finding, its position and the line in the file.
func printFinding(w io.Writer, s style, f *manifest.File, finding report.Finding, excerpt bool) {
	at := fmt.Sprintf("%s:%d", finding.File, finding.Line)
	if finding.Column > 0 {
		at += fmt.Sprintf(":%d", finding.Column)
	}
	word := s.bad("error")
	if finding.Severity == manifest.Warning {
		word = s.warn("warning")
	}
	text := printable(strings.ReplaceAll(finding.Message, "\n", " "))
	if finding.Path != "" {
		text = printable(finding.Path) + ": " + text
	}
	fmt.Fprintf(w, "%s: %s: %s\n", s.bold(printable(at)), word, text)
	if excerpt && f != nil {
		fmt.Fprint(w, s.faint(report.Excerpt(f, finding.Position)))
	}
}
