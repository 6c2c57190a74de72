package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMapNamesEveryPackage compares the folders that ARCHITECTURE.md lists with those that hold Go code.
func TestMapNamesEveryPackage(t *testing.T) {
	var have []string
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, ".go") {
			dir, err := filepath.Rel(root, filepath.Dir(path))
			have = append(have, filepath.ToSlash(dir))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(have)

	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	mapped := mappedFolders(t, string(page))
	if diff := cmp.Diff(slices.Compact(have), mapped); diff != "" {
		t.Errorf("the list under \"Where things are\" in ARCHITECTURE.md: add the folders with -, delete those with +\n%s", diff)
	}
}

// mappedFolders returns the folders of the map, sorted. A line begins with folders; two spaces end them.
func mappedFolders(t *testing.T, page string) []string {
	t.Helper()
	_, section, found := strings.Cut(page, "## Where things are\n")
	_, block, opened := strings.Cut(section, "```\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !opened || !closed {
		t.Fatal("ARCHITECTURE.md has no block under the title \"Where things are\"")
	}
	var folders []string
	for line := range strings.Lines(block) {
		left, meaning, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		if left != "" && strings.TrimSpace(meaning) == "" {
			t.Errorf("no meaning beside %q", left)
		}
		for folder := range strings.SplitSeq(left, ", ") {
			folders = append(folders, expandBraces(folder)...)
		}
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool { return folder == "" })
	slices.Sort(folders)
	return folders
}

// expandBraces expands the first a{b,c}d of a path, as a shell does.
func expandBraces(path string) []string {
	before, rest, braces := strings.Cut(path, "{")
	inside, after, closed := strings.Cut(rest, "}")
	if !braces || !closed {
		return []string{path}
	}
	var all []string
	for name := range strings.SplitSeq(inside, ",") {
		all = append(all, before+name+after)
	}
	return all
}
