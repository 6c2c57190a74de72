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

// Names of directories for temporary files: of runs, which are removed, and of logs, which are left after a failure.
const (
	runPrefix  = "assay-node-run-"
	logsPrefix = "assay-node-logs-"
	// tempDir is for temporary files of a run.
	tempDir = "tmp"
)

// makeRunDir makes a directory that is locked for as long as this process lives.
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

// newDir is how young a directory may be that is not locked yet.
const newDir = time.Minute

// sweep removes what runs have left that were killed together with their guards: their processes and mounts have gone with their
// namespaces, files and cgroups have not. What cannot be removed stays.
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

// cleanUp removes what the run has left, and adds to its error what could not be removed. Logs stay after a failure, or if
// they were asked for.
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

// remove removes the cgroup and the directory of a run whose processes end or have ended.
func remove(dir string, controllers []string) error {
	return errors.Join(removeCgroups(cgroupName(dir)), restoreControllers(controllers), os.RemoveAll(dir))
}

// guard starts a process that removes the directory and the cgroup of the run when this one is killed and cannot do that. The
// function returned ends it.
func guard(opt options, controllers []string) (end func(), err error) {
	opt.before = strings.Join(controllers, ",")
	cmd := again(opt, stageGuard)
	// Of a session of its own it outlives what ends the group of this one; and nobody waits for it at a pipe.
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

// asGuard is guard's other half. Standard input ends when the process at its other end does.
func asGuard(opt options) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if _, err := os.Stat(opt.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return remove(opt.dir, strings.FieldsFunc(opt.before, func(r rune) bool { return r == ',' }))
}

// keepLogs moves the logs of programs and pods out of the directory of a run, if there are any yet.
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
