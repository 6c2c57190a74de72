package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/discovery/host"
)

func TestRealHostDescribesFilesAsOSDoes(t *testing.T) {
	root := realTree(t)
	h := host.Real(host.Paths{Root: root})
	for _, name := range []string{"file", "dir", "pipe", "link", "dir/private"} {
		got, err := h.Stat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if got.Mode() != want.Mode() || got.Size() != want.Size() || !got.ModTime().Equal(want.ModTime()) || got.IsDir() != want.IsDir() {
			t.Errorf("%s: got %v, want %v", name, fs.FormatFileInfo(got), fs.FormatFileInfo(want))
		}
		// The owner of a feature file decides whether it is trusted.
		if st, ok := got.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			t.Errorf("%s: its owner is not known: %T", name, got.Sys())
		}
	}
	if _, err := h.Stat("nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestRealHostReadsFilesAndDirectories(t *testing.T) {
	h := host.Real(host.Paths{Root: realTree(t)})
	for _, name := range []string{"file", "link"} {
		if data, err := h.ReadFile(name); err != nil || string(data) != "content" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{"dir", "pipe"} {
		if _, err := h.ReadFile(name); err == nil {
			t.Errorf("%s was read as a file", name)
		}
	}
	names, err := h.ReadDir(".")
	if want := []string{"dir", "file", "link", "pipe"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v, want %v", names, err, want)
	}
	if _, err := h.ReadDir("file"); err == nil {
		t.Error("a file was read as a directory")
	}
}

// realTree creates one file of each kind.
func realTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "file"), []byte("content"), 0o644),
		os.Mkdir(filepath.Join(root, "dir"), 0o755),
		os.WriteFile(filepath.Join(root, "dir", "private"), nil, 0o600),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o644),
		os.Symlink("file", filepath.Join(root, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}
