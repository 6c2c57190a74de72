//go:build linux

package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// built has the paths of programs that this process has built.
var built sync.Map

// Program builds a program of cmd, such as assay-manager, and returns its path. It is linked once for all packages: go build leaves a file as
// it is that is up to date.
func Program(t testing.TB, name string) string {
	t.Helper()
	if path, ok := built.Load(name); ok {
		return path.(string)
	}
	mod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600) // packages are tested at the same time
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", root, "-ldflags=-s -w", "-o", path, "./cmd/"+name).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	built.Store(name, path)
	return path
}
