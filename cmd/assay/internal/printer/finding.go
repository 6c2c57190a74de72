// Package printer prints what verbs show: objects, tables, findings, progress and colors.
package printer

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
)

// Finding prints a finding, its position and the line in the file.
func Finding(w io.Writer, s Style, f *manifest.File, finding report.Finding, excerpt bool) {
	at := fmt.Sprintf("%s:%d", finding.File, finding.Line)
	if finding.Column > 0 {
		at += fmt.Sprintf(":%d", finding.Column)
	}
	word := s.Bad("error")
	if finding.Severity == manifest.Warning {
		word = s.Warn("warning")
	}
	text := clip.Printable(strings.ReplaceAll(finding.Message, "\n", " "))
	if finding.Path != "" {
		text = clip.Printable(finding.Path) + ": " + text
	}
	fmt.Fprintf(w, "%s: %s: %s\n", s.Bold(clip.Printable(at)), word, text)
	if excerpt && f != nil {
		fmt.Fprint(w, s.Faint(report.Excerpt(f, finding.Position)))
	}
}
