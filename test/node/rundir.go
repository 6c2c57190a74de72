//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prefixes of temporary directories: of runs, which are removed, and of logs, which are kept after a failure.
const (
	runPrefix  = "assay-node-run-"
	logsPrefix = "assay-node-logs-"
	// tempDir is for temporary files of a run.
	tempDir = "tmp"
)

// makeRunDir creates a directory that is locked as long as this process lives.
func makeRunDir() (dir string, unlock func(), err error) {
	if dir, err = os.MkdirTemp("", runPrefix); err != nil {
		return "", nil, err
	}
	lock, err := os.Open(dir)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, tempDir), 0o700)
	}
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() { _ = lock.Close() }, nil
}

// newDir is the maximum age of a directory that is not locked yet.
const newDir = time.Minute

// sweep removes leftovers of runs that were killed together with their guards: processes and mounts ended with their namespaces,
// files and cgroups did not. It ignores errors.
func sweep(temp string) {
	dirs, err := filepath.Glob(filepath.Join(temp, runPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		lock, err := os.Open(dir)
		if err != nil {
			continue
		}
		info, err := lock.Stat()
		if err == nil && time.Since(info.ModTime()) > newDir && unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeCgroups(cgroupName(dir))
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// cleanUp removes the leftovers of the run, and adds errors to the run's error. Logs are kept after a failure, or on request.
func cleanUp(opt options, controllers []string, err *error) {
	failed := *err != nil && !errors.Is(*err, errInterrupted) && !errors.As(*err, new(skipped))
	if failed || opt.keep {
		if logs, ok := keepLogs(opt.dir); ok {
			fmt.Println("node: the logs are in", logs)
		}
	}
	if left := remove(opt.dir, controllers); left != nil {
		*err = errors.Join(*err, fmt.Errorf("clean up: %w", left))
	}
}

// remove removes the cgroup and the directory of a run whose processes have ended or are about to end.
func remove(dir string, controllers []string) error {
	return errors.Join(removeCgroups(cgroupName(dir)), restoreControllers(controllers), os.RemoveAll(dir))
}

// guard starts a process that removes the directory and the cgroup of the run if this process is killed. The returned function ends
// it.
func guard(opt options, controllers []string) (end func(), err error) {
	opt.before = strings.Join(controllers, ",")
	cmd := again(opt, stageGuard)
	// In a new session it survives signals to this process group; and no pipe blocks on it.
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = nil, nil, nil, &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = alive.Close(); _ = cmd.Wait() }, nil
}

// asGuard is the inner part of guard. Standard input ends when the process at its other end does.
func asGuard(opt options) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if _, err := os.Stat(opt.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return remove(opt.dir, strings.FieldsFunc(opt.before, func(r rune) bool { return r == ',' }))
}

// keepLogs moves the logs of programs and pods, if any, out of the directory of a run.
func keepLogs(dir string) (string, bool) {
	if _, err := os.Stat(filepath.Join(dir, "cluster/log")); errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	to, err := os.MkdirTemp(filepath.Dir(dir), logsPrefix)
	if err != nil {
		return "", false
	}
	for from, name := range map[string]string{"cluster/log": "programs", "podlogs": "pods"} {
		_ = os.Rename(filepath.Join(dir, from), filepath.Join(to, name)) // there may be no pods yet
	}
	return to, true
}
