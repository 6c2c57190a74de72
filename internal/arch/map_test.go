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

// TestMapNamesEveryPackage checks that ARCHITECTURE.md lists exactly the directories with Go code.
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

// mappedFolders returns the sorted directories in the list. A line starts with directories, followed by two spaces.
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

// expandBraces expands the first a{b,c}d in a path, as a shell does.
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

// maxPathPackages is the maximum number of packages on each of the two paths through the code.
const maxPathPackages = 8

// TestPathsNameFilesThatExist checks that the files on the two paths in ARCHITECTURE.md exist, and that the paths are short.
func TestPathsNameFilesThatExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Two paths through the code\n")
	section, _, _ = strings.Cut(section, "\n## ")
	paths := strings.Split(section, "\nFrom ")[1:]
	if len(paths) != 2 {
		t.Fatalf("%d paths, want 2", len(paths))
	}
	for _, path := range paths {
		title, _, _ := strings.Cut(path, ":")
		packages := map[string]bool{}
		for i, file := range strings.Split(path, "`") {
			if i%2 == 0 || !strings.HasSuffix(file, ".go") {
				continue
			}
			packages[filepath.Dir(file)] = true
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(file))); err != nil {
				t.Errorf("from %s: %v", title, err)
			}
		}
		if n := len(packages); n == 0 || n > maxPathPackages {
			t.Errorf("from %s: %d packages, want at most %d", title, n, maxPathPackages)
		}
	}
}
