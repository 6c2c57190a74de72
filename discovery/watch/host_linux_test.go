package watch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// watching returns the announcements of a Host for the targets.
func watching(t *testing.T, targets ...Target) <-chan string {
	t.Helper()
	h, errs := Open(targets)
	for _, err := range errs {
		t.Log(err) // a sandbox may forbid netlink; files are all that is needed here
	}
	if h.files == nil {
		t.Skip("no inotify")
	}
	names := make(chan string, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { h.Run(ctx, func(name string) { names <- name }); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return names
}

func expect(t *testing.T, names <-chan string, want string) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case name := <-names:
			if name == want {
				return
			}
		case <-deadline:
			t.Fatalf("%s was not announced", want)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	names := watching(t, Target{Path: dir, Source: "local"})
	do(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	expect(t, names, "local")
	do(t, os.Remove(filepath.Join(dir, "f")))
	expect(t, names, "local")
}

func TestDirectoriesThatComeLaterAreAnnounced(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "features.d")
	names := watching(t, Target{Path: dir, Source: "local"})
	do(t, os.MkdirAll(dir, 0o755))
	expect(t, names, "local")
	do(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	expect(t, names, "local")
	do(t, os.RemoveAll(filepath.Join(root, "a")))
	expect(t, names, "local")
	do(t, os.MkdirAll(dir, 0o755))
	expect(t, names, "local")
}

func TestDirectoriesOneBelowADeepTargetAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	names := watching(t, Target{Path: dir, Source: "custom", Deep: true}, Target{Path: filepath.Join(dir, "b"), Source: "other"})
	do(t, os.Mkdir(filepath.Join(dir, "b"), 0o755))
	expect(t, names, "other") // so that the new directory is known to be watched
	do(t, os.WriteFile(filepath.Join(dir, "b", "rules.yaml"), []byte("x"), 0o644))
	expect(t, names, "custom")
}
