package printer

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules/clip"
)

// Progress shows what a command waits for, on a terminal only.
type Progress struct {
	w  io.Writer
	on bool
}

// NewProgress returns the progress of a command, which is shown on standard error.
func NewProgress(cmd *cobra.Command) Progress {
	w := cmd.ErrOrStderr()
	return Progress{w, StyleOf(w).on}
}

// Step replaces the line.
func (p Progress) Step(format string, args ...any) {
	if p.on {
		fmt.Fprintf(p.w, "\r\x1b[K%s", clip.Printable(fmt.Sprintf(format, args...)))
	}
}

// End removes the line.
func (p Progress) End() { p.Step("") }
