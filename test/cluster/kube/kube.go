//go:build linux

// Package kube provides the programs of Kubernetes, built from Go modules, without a registry or downloaded binaries.
//
// hack/kube is a separate module that links all of them to one binary. It is built once per version and stored in the user's cache
// directory; every program is a symlink to it.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the programs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Kubectl           = "kubectl"
)

// Version is the version of Kubernetes that hack/kube pins, and that its programs report.
const Version = "v1.37.2"

// AssetsVar is the environment variable with a directory of programs, as in controller-runtime's envtest. It must have etcd, kube-apiserver
// and kubectl, those of them that are needed; other programs, which envtest does not have, are built if they are missing.
const AssetsVar = "KUBEBUILDER_ASSETS"

// keepUnused is how long the binary of another version is kept after its last use: long enough to switch between branches, short
// enough that old versions (145 MB each) do not accumulate.
const keepUnused = 30 * 24 * time.Hour

// ControlPlane names the programs of a control plane, and kubectl.
var ControlPlane = []string{Etcd, APIServer, Scheduler, ControllerManager, Kubectl}

// edition is a variant of the binary that hack/kube builds, and the programs in it.
type edition struct {
	tag      string // build tag, and suffix of the name in the cache; empty for the full one
	programs []string
	about    string // for the message before it is compiled
}

var (
	full = edition{
		programs: []string{Etcd, APIServer, Scheduler, ControllerManager, Kubelet, Proxy, Kubectl},
		about:    "etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubelet, kube-proxy and kubectl from source: %d packages. On two cores this takes 5 to 12 minutes",
	}
	core = edition{
		tag: "core", programs: []string{Etcd, APIServer, Kubectl},
		about: "etcd, kube-apiserver and kubectl from source: %d packages. On two cores this takes 3 to 8 minutes",
	}
)

// smallest returns the edition that has the needed programs.
func smallest(needed []string) edition {
	for _, name := range needed {
		if !slices.Contains(core.programs, name) {
			return full
		}
	}
	return core
}

// Programs maps the name of a program to the path of its executable.
type Programs map[string]string

// Find returns the paths of the needed programs (all, if none is named): from $KUBEBUILDER_ASSETS if they exist there, else from
// the cache, else newly built, which takes up to 12 minutes on two cores and is reported to progress. If only etcd, kube-apiserver
// and kubectl are needed, no other program is compiled. The working directory must be inside a clone of the project. Several
// processes can call it at the same time: one builds, the others wait.
func Find(ctx context.Context, progress io.Writer, needed ...string) (Programs, error) {
	if len(needed) == 0 {
		needed = full.programs
	}
	programs := given(os.Getenv(AssetsVar), needed)
	if len(programs) == len(needed) {
		return programs, nil
	}
	if given := os.Getenv(AssetsVar); given != "" {
		if missing := slices.DeleteFunc(absent(programs, needed), func(name string) bool { return !isCore(name) }); len(missing) > 0 {
			return nil, fmt.Errorf("%s=%s lacks %s, or they are not executable: add them, or unset the variable to use others", AssetsVar, given, strings.Join(missing, ", "))
		}
	}
	dir, err := provide(ctx, smallest(needed), progress)
	if err != nil {
		return nil, err
	}
	for _, name := range needed {
		if programs[name] == "" {
			programs[name] = filepath.Join(dir, name)
		}
	}
	return programs, nil
}

// given returns those of the needed programs that dir holds.
func given(dir string, needed []string) Programs {
	programs := Programs{}
	if dir == "" {
		return programs
	}
	for _, name := range needed {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			programs[name] = path
		}
	}
	return programs
}

// absent returns the needed programs that are not there.
func absent(programs Programs, needed []string) []string {
	return slices.DeleteFunc(slices.Clone(needed), func(name string) bool { return programs[name] != "" })
}

// Cached reports whether Find returns the needed programs without compiling.
func Cached(ctx context.Context, needed ...string) bool {
	if len(given(os.Getenv(AssetsVar), needed)) == len(needed) {
		return true
	}
	source, err := sourceDir()
	if err != nil {
		return false
	}
	key, err := cacheKey(ctx, source)
	if err != nil {
		return false
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return false
	}
	dir, e := filepath.Join(cache, "assay", "kube", key), smallest(needed)
	return complete(dir, full) || e.tag != "" && complete(dir+"-"+e.tag, e)
}

// Build returns the directory with all programs of the version in hack/kube, and builds them if necessary.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	return provide(ctx, full, progress)
}

// provide returns the directory of an edition, or of the full one if it already exists.
func provide(ctx context.Context, e edition, progress io.Writer) (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	key, err := cacheKey(ctx, source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the Kubernetes binaries: %w", err)
	}
	cache = filepath.Join(cache, "assay", "kube")
	dir := filepath.Join(cache, key)
	if complete(dir, full) {
		touch(dir)
		return dir, nil
	}
	if e.tag != "" {
		dir += "-" + e.tag
		if complete(dir, e) {
			touch(dir)
			return dir, nil
		}
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"), progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir, e) { // built by the process that held the lock
		return dir, nil
	}
	if err := build(ctx, e, source, dir, progress); err != nil {
		return "", err
	}
	prune(cache, key)
	return dir, nil
}

// build compiles to a temporary directory and renames it to dir, so that dir is complete or absent.
func build(ctx context.Context, e edition, source, dir string, progress io.Writer) error {
	next, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }() // does nothing after the rename
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	if err := compile(ctx, e, source, filepath.Join(next, "kubeall"), progress); err != nil {
		return fmt.Errorf("build the Kubernetes control plane in %s: %w", source, err)
	}
	for _, name := range e.programs {
		if err := os.Symlink("kubeall", filepath.Join(next, name)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil { // leftovers of an interrupted cleanup
		return err
	}
	return os.Rename(next, dir)
}

// complete reports whether dir holds every program of an edition.
func complete(dir string, e edition) bool {
	return len(given(dir, e.programs)) == len(e.programs)
}

// Root returns the directory of the project that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "kube", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a clone of Assay: no hack/kube in it or above it; the control plane is built from there", start)
		}
	}
}

func sourceDir() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "hack", "kube"), nil
}

// cacheKey identifies the binary built from the source with the Go version and the flags.
func cacheKey(ctx context.Context, source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	sort.Strings(files)

	hash := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(data), data)
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask the go command for its version: %w%s", err, stderrOf(err))
	}
	fmt.Fprintf(hash, "%s%q%q", out, buildEnv, ldflags())
	version := strings.Fields(string(out))[0]
	return Version + "-" + version + "-" + hex.EncodeToString(hash.Sum(nil))[:12], nil
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

// lock waits for the exclusive lock on a file. The kernel releases it when the process ends.
func lock(path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintln(progress, "kube: another process is building the Kubernetes control plane; waiting for it")
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// touch records that a binary is in use. If it fails, the binary is rebuilt in a month.
func touch(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}

// prune removes binaries of other versions that were not used for a while, and leftovers of interrupted builds. The next build
// retries after a failure.
func prune(cache, keep string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || strings.HasPrefix(entry.Name(), keep) {
			continue
		}
		if strings.HasPrefix(entry.Name(), "new-") || time.Since(info.ModTime()) > keepUnused {
			_ = os.RemoveAll(filepath.Join(cache, entry.Name()))
		}
	}
}
