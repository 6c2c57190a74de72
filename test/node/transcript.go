//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// transcript prints commands, their output, and what it shows. The zero value starts now.
type transcript struct {
	number  int
	began   time.Time // of the step
	figures []string
}

// begin begins a step.
func (t *transcript) begin(name string) {
	t.number++
	t.began = time.Now()
	fmt.Printf("\n[%d/%d] %s\n", t.number, len(steps), name)
}

// note prints an observation.
func (t *transcript) note(format string, args ...any) {
	fmt.Println(indent("  -> ", fmt.Sprintf(format, args...)))
}

// figure prints a note that is repeated at the end.
func (t *transcript) figure(format string, args ...any) {
	t.note(format, args...)
	t.figures = append(t.figures, fmt.Sprintf(format, args...))
}

// end ends a step with a one-word result.
func (t *transcript) end(result string) {
	fmt.Printf("  %s, %.1f s\n", result, time.Since(t.began).Seconds())
}

// show runs kubectl or Helm with the command and its output in the transcript, and returns the output.
func (s *story) show(ctx context.Context, args ...string) (string, error) {
	return s.showInput(ctx, "", args...)
}

// showInput is show with standard input, as for `kubectl apply -f -`.
func (s *story) showInput(ctx context.Context, stdin string, args ...string) (string, error) {
	fmt.Println(indent("  $ ", typed(stdin, args)))
	out, err := s.command(ctx, stdin, args...)
	if text := strings.TrimSpace(out); text != "" {
		fmt.Println(indent("  ", text))
	}
	return out, err
}

// command runs kubectl or Helm and returns its output.
func (s *story) command(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.path(filepath.Join(binDir, args[0])), args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.root, append(os.Environ(), s.env()...), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// lineWidth is the width at which a long command is wrapped.
const lineWidth = 120

// typed returns a command as typed in a shell.
func typed(stdin string, args []string) string {
	var text strings.Builder
	width := 0
	for i, arg := range args {
		arg = quote(arg)
		switch {
		case i == 0:
		case width+len(arg) > lineWidth:
			text.WriteString(" \\\n    ")
			width = 4
		default:
			text.WriteByte(' ')
		}
		text.WriteString(arg)
		width += len(arg) + 1
	}
	if stdin != "" {
		text.WriteString(" <<'EOF'\n" + strings.TrimSpace(stdin) + "\nEOF")
	}
	return text.String()
}

// quote quotes an argument for a shell if necessary.
func quote(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\n\"'\\$`|&;<>()[]{}*?#~!") {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// indent puts first before the first line, and as many blanks before all others.
func indent(first, text string) string {
	return first + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len(first)))
}
