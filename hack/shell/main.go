// Command shell is the sh of the worker's image for hooks that are scripts: a POSIX shell with most of bash, in Go, so that the
// image stays reproducible on every architecture and holds nothing that a distribution has to keep available. The programs that
// scripts call besides are listed as tools in go.mod.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// The exit codes that POSIX gives a shell for what it cannot do (XCU 2.8.2).
const (
	exitError    = 2
	exitNotFound = 127
)

func main() {
	name := filepath.Base(os.Args[0])
	if applet := applets[name]; applet != nil {
		c := &call{args: os.Args[1:], stdin: os.Stdin, stdout: bufio.NewWriter(os.Stdout)}
		status, err := applet(c)
		if err := errors.Join(err, c.stdout.Flush()); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			status = max(status, 1)
		}
		os.Exit(status)
	}
	err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if status, ok := errors.AsType[interp.ExitStatus](err); ok {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, os.ErrNotExist) {
			os.Exit(exitNotFound)
		}
		os.Exit(exitError)
	}
}

// invocation is what the arguments of a shell say.
type invocation struct {
	settings []string // such as -e, for set
	command  *string  // of -c
	file     string   // with the script; empty: standard input
	args     []string // $1 and so on
}

// parse reads the arguments as XCU sh has them: options, some of which may stand in one word, then the script.
func parse(args []string) (invocation, error) {
	var in invocation
	command := false
	for len(args) > 0 && len(args[0]) > 1 && strings.ContainsAny(args[0][:1], "-+") {
		word := args[0]
		args = args[1:]
		if word == "--" {
			break
		}
		letters := strings.ReplaceAll(word[1:], "c", "")
		command = command || letters != word[1:]
		if letters = strings.ReplaceAll(letters, "s", ""); letters == "" {
			continue
		}
		in.settings = append(in.settings, word[:1]+letters)
		if strings.HasSuffix(letters, "o") {
			if len(args) == 0 {
				return in, fmt.Errorf("sh: %s needs the name of an option", word)
			}
			in.settings, args = append(in.settings, args[0]), args[1:]
		}
	}
	switch {
	case command && len(args) == 0:
		return in, errors.New("sh: -c needs a command")
	case command:
		in.command, args = &args[0], args[1:]
		if len(args) > 0 {
			args = args[1:] // $0
		}
	case len(args) > 0:
		in.file, args = args[0], args[1:]
	}
	in.args = args
	return in, nil
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	in, err := parse(args)
	if err != nil {
		return err
	}
	source, name := stdin, "sh"
	switch {
	case in.command != nil:
		source = strings.NewReader(*in.command)
	case in.file != "":
		f, err := os.Open(in.file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		source, name = f, in.file
	}
	script, err := syntax.NewParser().Parse(source, name)
	if err != nil {
		return err
	}
	params := append(append(in.settings, "--"), in.args...)
	shell, err := interp.New(interp.StdIO(stdin, stdout, stderr), interp.Params(params...))
	if err != nil {
		return fmt.Errorf("sh: %w", err)
	}
	return shell.Run(ctx, script)
}
