package local

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/discovery/host"
)

// TestNoLinkLeavesTheDirectory lets users who can write features.d link to files that the worker can read, and they cannot.
func TestNoLinkLeavesTheDirectory(t *testing.T) {
	t.Setenv("SECRET", "environment")
	root := t.TempDir()
	dir, outside := filepath.Join(root, "features.d"), filepath.Join(root, "outside")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "..data"), 0o755), os.Mkdir(outside, 0o755),
		os.WriteFile(filepath.Join(outside, "token"), []byte("token\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "..data", "map"), []byte("map\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), []byte("file\n"), 0o644),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
	)
	for name, target := range map[string]string{
		"absolute": filepath.Join(outside, "token"), "relative": "../outside/token", "by-directory": "..out/token", "..out": outside,
		"environ": "/proc/self/environ", "by-proc": "/proc/self/root" + filepath.Join(outside, "token"), "prefix": "../features.d.old",
		"map": "..data/map", "inside": filepath.Join(dir, "file"), "directory": outside,
	} {
		err = errors.Join(err, os.Symlink(target, filepath.Join(dir, name)))
	}
	if err = errors.Join(err, os.WriteFile(dir+".old", []byte("old\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	// The directory is that of a container, whose root is that of the worker itself.
	own := host.Real(host.Paths{})
	for name, strict := range map[string]bool{"Default": false, "Strict": true} {
		t.Run(name, func(t *testing.T) {
			if strict && os.Getuid() != 0 {
				t.Skip("only root can own files that strict mode accepts")
			}
			r, err := New(Config{Directory: dir[1:], Files: &own, Strict: strict}).Discover(t.Context(), host.Host{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"file": "true", "map": "true"}, r.Labels); diff != "" {
				t.Error(diff)
			}
			rejected := map[string]bool{}
			for _, p := range r.Problems {
				name, why, _ := strings.Cut(strings.TrimPrefix(p.Error(), dir+"/"), ": ")
				if strings.HasPrefix(why, "rejected: a symbolic link leads out of the directory") {
					rejected[name] = true
				}
			}
			want := map[string]bool{
				"absolute": true, "relative": true, "by-directory": true, "environ": true, "by-proc": true, "prefix": true, "directory": true,
			}
			if diff := cmp.Diff(want, rejected); diff != "" {
				t.Errorf("%s\nproblems: %v", diff, r.Problems)
			}
		})
	}
}

// TestStrictChecksTheOwnerOfLinks lets a user link to a file of root in features.d, and to a program of root in source.d.
func TestStrictChecksTheOwnerOfLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can change the owner of a link")
	}
	root := t.TempDir()
	dir, programs := filepath.Join(root, "features.d"), hooks(t, map[string]string{".program": "echo hook"})
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, ".draft"), []byte("draft\n"), 0o644),
		os.Symlink(".draft", filepath.Join(dir, "link")), os.Lchown(filepath.Join(dir, "link"), 1000, 1000),
		os.Symlink("link", filepath.Join(dir, "of-root")),
		os.Symlink(".program", filepath.Join(programs, "hook")), os.Lchown(filepath.Join(programs, "hook"), 1000, 1000),
	)
	if err != nil {
		t.Fatal(err)
	}
	for strict, labels := range map[bool]map[string]string{false: {"draft": "true"}, true: {}} {
		c := Config{Directory: "features.d", Strict: strict, HooksEnabled: true, HooksDirectory: programs}
		r, err := New(c).Discover(t.Context(), host.Real(host.Paths{Root: root}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(labels, r.Labels); diff != "" {
			t.Errorf("strict %v: %s", strict, diff)
		}
		var text strings.Builder
		for _, p := range r.Problems {
			text.WriteString(p.Error() + "\n")
		}
		if n := strings.Count(text.String(), "user 1000, not root, owns the symbolic link link"); n != 2 {
			t.Errorf("strict %v: %d files are named, want 2:\n%s", strict, n, &text)
		}
		if !strings.Contains(text.String(), "hook: not run: user 1000, not root, owns the symbolic link hook") {
			t.Errorf("strict %v: the hook is not named:\n%s", strict, &text)
		}
	}
}

// TestAMountIsReadAsAFile mounts a file and a directory into features.d, which only root can do.
func TestAMountIsReadAsAFile(t *testing.T) {
	root := t.TempDir()
	dir, outside := filepath.Join(root, "features.d"), filepath.Join(root, "outside")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, ".mount"), 0o755), os.Mkdir(outside, 0o755),
		os.WriteFile(filepath.Join(outside, "file"), []byte("mounted\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Symlink(".mount/file", filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread with its mounts ends with the goroutine
	err = unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skip("cannot mount:", err)
	}
	for from, to := range map[string]string{filepath.Join(outside, "file"): "file", outside: ".mount"} {
		if err := unix.Mount(from, filepath.Join(dir, to), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, to), 0) })
	}
	r, err := New(Config{Directory: "features.d", Strict: os.Getuid() == 0}).Discover(t.Context(), host.Real(host.Paths{Root: root}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mounted": "true"}, r.Labels); diff != "" || len(r.Problems) != 1 {
		t.Errorf("%s\nproblems: %v, want that both set the same name", diff, r.Problems)
	}
}
