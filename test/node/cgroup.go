//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where all distributions mount cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// cgroups returns the type of file system at cgroupRoot: cgroup v2, or a tmpfs with the hierarchies of v1.
func cgroups() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &s); err != nil {
		return 0, fmt.Errorf("there are no cgroups at %s: %w", cgroupRoot, err)
	}
	return s.Type, nil
}

func isV1() bool {
	kind, err := cgroups()
	return err == nil && kind != unix.CGROUP2_SUPER_MAGIC
}

// cgroupName returns the cgroup of a run, named after its directory.
func cgroupName(dir string) string { return filepath.Base(dir) }

// hierarchies returns the directories in which to create a cgroup: one for each hierarchy of v1, the root for v2.
func hierarchies() ([]string, error) {
	if !isV1() {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, entry := range entries {
		if entry.IsDir() { // links are second names: cpu -> cpu,cpuacct
			dirs = append(dirs, filepath.Join(cgroupRoot, entry.Name()))
		}
	}
	return dirs, nil
}

// v2Controllers are the controllers that limit a pod.
var v2Controllers = []string{"cpu", "cpuset", "memory", "pids"}

// controlFile lists the controllers for children of the cgroup v2 root.
const controlFile = cgroupRoot + "/cgroup.subtree_control"

// enabledControllers returns the cgroup v2 controllers that are enabled for children of the root.
func enabledControllers() []string {
	has, err := os.ReadFile(controlFile)
	if err != nil {
		return nil // cgroup v1
	}
	return strings.Fields(string(has))
}

// enableControllers enables the controllers that the kubelet requires at its root. It fails in a container whose own processes are
// in the apparent root (cgroup-v2.rst, "No Internal Process Constraint").
func enableControllers() error {
	on := slices.Clone(v2Controllers)
	if has, err := os.ReadFile(cgroupRoot + "/cgroup.controllers"); err == nil && slices.Contains(strings.Fields(string(has)), "hugetlb") {
		on = append(on, "hugetlb")
	}
	return os.WriteFile(controlFile, []byte("+"+strings.Join(on, " +")), 0o644)
}

// restoreControllers disables controllers that were disabled before. The kubelet enables all of them.
func restoreControllers(before []string) error {
	var errs []error
	for _, controller := range enabledControllers() {
		if !slices.Contains(before, controller) {
			errs = append(errs, os.WriteFile(controlFile, []byte("-"+controller), 0o644))
		}
	}
	return errors.Join(errs...)
}

// makeCgroups creates the cgroup into which the kubelet puts all pods.
func makeCgroups(name string) error {
	if !isV1() {
		if err := enableControllers(); err != nil {
			return err
		}
	}
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A v1 cpuset only works after its processors and memory are set (cgroup-v1/cpusets.rst).
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(own, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the cgroup with everything below it, after its last process has ended.
func removeCgroups(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeTree(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup, deepest first; its files are removed with it. Killed processes can take a moment to leave.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		var err error
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if err = unix.Rmdir(dirs[i]); err == nil || errors.Is(err, unix.ENOENT) {
				err = nil
				break
			}
		}
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", strings.TrimPrefix(dirs[i], cgroupRoot), err)
		}
	}
	return nil
}
