package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// DefaultHookTimeout is the timeout of a hook: tools that query a GPU or a BMC take seconds.
	DefaultHookTimeout = 10 * time.Second
	// MaxHooksTime is the timeout of all hooks together, and therefore the maximum delay of everything else on the node.
	MaxHooksTime = 30 * time.Second
	// maxHooks is the maximum number of hooks.
	maxHooks = 64
	// maxErrorLines is the maximum number of lines of a hook's error output that are logged.
	maxErrorLines = 100
	maxErrorBytes = 16 << 10
)

var (
	errOutput = fmt.Errorf("printed more than %d bytes", MaxFileSize)
	errTime   = errors.New("took too long and was terminated with its child processes")
)

// runHooks runs the executable regular files in the hooks directory, in the order of their names.
func (s *Source) runHooks(ctx context.Context, out *elements) error {
	entries, err := os.ReadDir(s.config.HooksDirectory) // sorted
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || len(entries) == 0 {
		return err
	}
	// Who can write the directory can exchange a file between its check and its execution.
	if info, err := os.Stat(s.config.HooksDirectory); err != nil {
		return err
	} else if why := writable(info); why != "" {
		out.problem(fmt.Errorf("%s: no hook runs: %s, and hooks run with the permissions of the worker", s.config.HooksDirectory, why))
		return nil
	}
	ran := 0
	for _, entry := range entries {
		path := filepath.Join(s.config.HooksDirectory, entry.Name())
		info, links, err := followed(path)
		if err != nil {
			s.failed(out, path, err)
			continue
		}
		if strings.HasPrefix(entry.Name(), ".") || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		if why := untrusted(info, links); why != "" {
			out.problem(fmt.Errorf("%s: not run: %s, and hooks run with the permissions of the worker", path, why))
			continue
		}
		if ran++; ran > maxHooks {
			out.problem(fmt.Errorf("%s: only the first %d hooks run", s.config.HooksDirectory, maxHooks))
			return nil
		}
		s.runHook(ctx, path, out)
	}
	return nil
}

// followed returns information about a file, and about the link to it, if it is one.
func followed(path string) (info fs.FileInfo, links []fs.FileInfo, err error) {
	link, err := os.Lstat(path)
	if err != nil || link.Mode()&fs.ModeSymlink == 0 {
		return link, nil, err
	}
	info, err = os.Stat(path)
	return info, []fs.FileInfo{link}, err
}

// runHook runs one hook. The output of a hook that fails does not count: see failed.
func (s *Source) runHook(ctx context.Context, path string, out *elements) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.HookTimeout, errTime)
	defer cancel()
	stdout := &bounded{max: MaxFileSize, full: cancel}
	stderr := &bounded{max: maxErrorBytes, full: func() {}}
	err := execute(ctx, path, stdout, stderr)
	lines := 0
	for line := range bytes.Lines(stderr.buffer.Bytes()) {
		if lines++; lines > maxErrorLines {
			break
		}
		s.config.Stderr(filepath.Base(path), strings.TrimRight(strings.ToValidUTF8(string(line), "?"), "\r\n"))
	}
	switch {
	case stdout.over:
		err = errOutput
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		s.failed(out, path, fmt.Errorf("hook %s: %w", path, err))
		return
	}
	s.parse(out, path, stdout.buffer.Bytes())
}

// bounded is a writer that keeps data up to a limit, and calls full when it discards more. It does not embed the buffer, whose
// ReadFrom would bypass the limit.
type bounded struct {
	buffer bytes.Buffer
	max    int
	over   bool
	full   func()
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - b.buffer.Len()
	if len(p) > room {
		b.buffer.Write(p[:max(room, 0)])
		if !b.over {
			b.over = true
			b.full()
		}
		return len(p), nil
	}
	return b.buffer.Write(p)
}
