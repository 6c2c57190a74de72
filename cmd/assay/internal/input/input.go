// Package input reads files that are passed to commands.
package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/assay-project/assay/rules/manifest"
)

const (
	// MaxFiles is the maximum number of files that a command reads.
	MaxFiles = 50_000
	// MaxDepth is the maximum depth of directories that are searched.
	MaxDepth = 32
)

// Extensions are the extensions of files that are read in directories.
var Extensions = []string{".yaml", ".yml", ".json"}

// Paths returns the files to read for the arguments. For a directory these are all YAML and JSON files below it, sorted by name. It
// skips directories whose name begins with a dot, and does not follow links to directories.
func Paths(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		if arg == "-" {
			out = append(out, arg)
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, plain(err)
		}
		if !info.IsDir() {
			out = append(out, arg)
			continue
		}
		before := len(out)
		if out, err = walk(out, arg, 0); err != nil {
			return nil, err
		}
		if len(out) == before {
			return nil, fmt.Errorf("%s: no YAML files found in this directory", arg)
		}
	}
	return out, nil
}

func walk(out []string, dir string, depth int) ([]string, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("%s: nested deeper than %d directories", dir, MaxDepth)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, plain(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			if out, err = walk(out, path, depth+1); err != nil {
				return nil, err
			}
		case slices.Contains(Extensions, strings.ToLower(filepath.Ext(path))):
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				continue // a link to a directory, or a broken link
			}
			out = append(out, path)
		}
		if len(out) > MaxFiles {
			return nil, fmt.Errorf("%s: more than %d files", dir, MaxFiles)
		}
	}
	return out, nil
}

// Read returns the content of a file, or of standard input if path is "-". It rejects files that are too large.
func Read(path string, stdin io.Reader) ([]byte, error) {
	if path != "-" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, plain(err)
		case info.IsDir():
			return nil, fmt.Errorf("%s: is a directory", path)
		case info.Mode().IsRegular() && info.Size() > manifest.MaxText:
			return nil, fmt.Errorf("%s: is %d MiB large; files of more than %d MiB are not read", path, info.Size()>>20, manifest.MaxText>>20)
		case info.Mode()&(fs.ModeDevice|fs.ModeSocket) != 0:
			return nil, fmt.Errorf("%s: not a regular file", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, plain(err)
		}
		defer func() { _ = f.Close() }()
		stdin = f
	}
	var b bytes.Buffer
	if n, err := io.Copy(&b, io.LimitReader(stdin, manifest.MaxText+1)); err != nil {
		return nil, plain(err)
	} else if n > manifest.MaxText {
		return nil, fmt.Errorf("%s: is larger than %d MiB", Name(path), manifest.MaxText>>20)
	}
	return b.Bytes(), nil
}

// Name returns the name of a file for messages.
func Name(path string) string {
	if path == "-" {
		return "<stdin>"
	}
	return path
}

// plain returns an error without the name of the system call.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

// Manifests parses files in parallel. Problems with reading a file are among the problems of its result.
func Manifests(paths []string, stdin io.Reader) []*manifest.File {
	out := make([]*manifest.File, len(paths))
	Each(len(paths), func(i int) {
		data, err := Read(paths[i], stdin)
		if err != nil {
			text := strings.TrimPrefix(err.Error(), paths[i]+": ")
			out[i] = &manifest.File{Name: Name(paths[i]), Problems: []manifest.Problem{{
				Position: manifest.Position{Line: 1}, Severity: manifest.Error, Code: "file", Message: text,
			}}}
			return
		}
		out[i] = manifest.Parse(Name(paths[i]), data)
	})
	return out
}

// Each calls f with 0 to n-1, in parallel on all CPUs.
func Each(n int, f func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	var next int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}
