// Package cli has what verbs have in common: flags, arguments, completion, and errors that decide the exit code.
package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules/clip"
)

// watchEvery is the time between two reads with --watch. Nodes and NodeFeatures have no common stream of changes, and a read takes less
// than a second for a thousand nodes.
const watchEvery = 2 * time.Second

// WatchFlag adds -w.
func WatchFlag(cmd *cobra.Command, to *bool, what string) {
	cmd.Flags().BoolVarP(to, "watch", "w", false, "after the first output, print "+what+" when they change")
}

// Repeated runs a command again and again until it is interrupted. It prints the first output, and then what changes: all of it if whole is
// set, otherwise the lines that are new, as kubectl does. Errors of a later run are printed.
func Repeated(cmd *cobra.Command, whole bool, run func() error) error {
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	defer cmd.SetOut(out)
	defer cmd.SetErr(errs)
	var last []string
	for first := true; ; first = false {
		var b bytes.Buffer
		cmd.SetOut(&b)
		err := run()
		if err != nil && !errors.Is(err, ErrFound) {
			if first {
				return err
			}
			fmt.Fprintln(errs, "assay:", clip.Printable(err.Error()))
		} else if lines := strings.SplitAfter(b.String(), "\n"); !slices.Equal(lines, last) {
			printed := lines
			if !whole {
				printed = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(last, line) })
			} else if !first {
				fmt.Fprintln(out)
			}
			fmt.Fprint(out, strings.Join(printed, ""))
			last = lines
		}
		cmd.SetErr(io.Discard) // notes are printed once
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}
