package lint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/fix"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// fixFiles rewrites deprecated forms in rules where this is safe. It does not change other bytes of the files.
func fixFiles(cmd *cobra.Command, paths []string) error {
	for _, path := range paths {
		if path == "-" {
			return errors.New("cannot fix standard input: pass a FILE or a DIRECTORY")
		}
		data, err := input.Read(path, nil)
		if err != nil {
			continue // already reported
		}
		fixed, notes := fix.Text(path, data, problemsOf(path))
		if fixed == nil {
			continue
		}
		if err := replaceFile(path, fixed); err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: fixed: %s\n", path, note)
		}
	}
	return nil
}

// problemsOf returns a function that lints data as the content of the named file.
func problemsOf(name string) func([]byte) []manifest.Problem {
	return func(text []byte) []manifest.Problem {
		file := manifest.Parse(name, text)
		var out []manifest.Problem
		for _, f := range check.New(review.Known{}, file).File(file) {
			out = append(out, f.Problem)
		}
		return out
	}
}

// dropAnnouncements removes the hint about --fix from findings that --fix cannot fix: a review of one object does not know whether
// the text around it can be rewritten.
func dropAnnouncements(files []*manifest.File, list []report.Finding) {
	left := map[string]func() func(manifest.Problem) bool{}
	for _, f := range files {
		left[f.Name] = sync.OnceValue(func() func(manifest.Problem) bool {
			problems := problemsOf(f.Name)
			fixed, _ := fix.Text(f.Name, f.Text(), problems)
			if fixed == nil {
				return func(manifest.Problem) bool { return true }
			}
			rest := problems(fixed)
			return func(p manifest.Problem) bool {
				return slices.ContainsFunc(rest, func(r manifest.Problem) bool { return fix.Same(p, r) })
			}
		})
	}
	for i := range list {
		at := strings.Index(list[i].Message, manifest.Announcement)
		if check := left[list[i].File]; at >= 0 && check != nil && check()(list[i].Problem) {
			list[i].Message = list[i].Message[:at]
		}
	}
}

// replaceFile replaces a file atomically.
func replaceFile(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".assay-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
