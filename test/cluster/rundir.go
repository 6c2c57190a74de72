//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/test/cluster/kube"
)

// Names inside a cluster's directory.
const (
	stateFile      = "cluster.json"
	lockFile       = "lock"
	kubeconfigFile = "kubeconfig"
	etcdDataDir    = "etcd"
	logDir         = "log"
	pkiDir         = "pki"
)

// tempPrefix begins the name of a directory that Start made itself.
const tempPrefix = "assay-cluster-"

// orphanAge is when a directory without a lock counts as left behind: longer than it takes to make one.
const orphanAge = time.Hour

// state is what another process needs to use or stop a cluster.
type state struct {
	Server    string          `json:"server"`
	Programs  kube.Programs   `json:"programs"`
	Processes []processRecord `json:"processes"`
}

// processRecord identifies a process: process numbers are used again, a number and a start time are not.
type processRecord struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Started string `json:"started"` // in clock ticks since the machine started, as /proc/PID/stat has it
}

func (s state) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, stateFile))
}

func readState(dir string) (state, error) {
	var s state
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

// Down stops the cluster that was started, detached, in dir, and removes the directory. No cluster there is no error.
func Down(dir string) error {
	s, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := len(s.Processes) - 1; i >= 0; i-- {
		if err := s.Processes[i].kill(); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// kill ends the process and waits until it is gone. It does nothing if the number belongs to another process by now.
func (r processRecord) kill() error {
	process, err := os.FindProcess(r.PID) // holds on to this very process: what follows cannot hit a later one
	if err != nil {
		return nil
	}
	defer func() { _ = process.Release() }()
	if !r.alive() {
		return nil
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s (process %d): %w", r.Name, r.PID, err)
	}
	for deadline := time.Now().Add(killTimeout); r.alive(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return fmt.Errorf("stop %s: process %d is still there %s after it was killed", r.Name, r.PID, killTimeout)
		}
	}
	return nil
}

// killTimeout bounds the time between SIGKILL and the end of a process: only one that hangs in the kernel takes longer.
const killTimeout = 10 * time.Second

// alive says whether the process is there and is the one recorded.
func (r processRecord) alive() bool {
	started, zombie, err := procStat(r.PID)
	return err == nil && started == r.Started && !zombie
}

// procStat returns when a process started and whether it has ended but nobody asked for its result (proc(5)).
func procStat(pid int) (started string, zombie bool, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, err
	}
	// The second field is the program's name in parentheses, and may hold anything; field 3 follows the last ")".
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	fields := strings.Fields(rest)
	const state, startTime = 0, 19 // fields 3 and 22
	if len(fields) <= startTime {
		return "", false, fmt.Errorf("process %d: unexpected /proc/%d/stat", pid, pid)
	}
	return fields[startTime], fields[state] == "Z", nil
}

// makeDir makes the directory of a cluster: the one asked for, which must be new or empty, or a temporary one. A temporary
// one is locked as long as this process lives.
func makeDir(asked string) (dir string, unlock func(), err error) {
	if asked == "" {
		sweep(os.TempDir())
		if dir, err = os.MkdirTemp("", tempPrefix); err != nil {
			return "", nil, err
		}
		unlock, err = lockDir(dir)
		return dir, unlock, err
	}
	if dir, err = filepath.Abs(asked); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", nil, err
	}
	if len(entries) > 0 {
		return "", nil, fmt.Errorf("%s is not empty; stop the cluster in it first, or name another directory", dir)
	}
	return dir, func() {}, nil
}

// lockDir marks a directory as in use. The lock is taken before the file has its name, so that nobody finds it free.
func lockDir(dir string) (unlock func(), err error) {
	next := filepath.Join(dir, lockFile+".new")
	file, err := os.OpenFile(next, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", next, err), file.Close())
	}
	if err := os.Rename(next, filepath.Join(dir, lockFile)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// sweep removes the directories that earlier clusters left because their program was killed. What cannot be removed stays.
func sweep(temp string) {
	dirs, err := filepath.Glob(filepath.Join(temp, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if abandoned(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// abandoned says whether no living process holds the lock of a directory.
func abandoned(dir string) bool {
	file, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		info, err := os.Stat(dir)
		return err == nil && time.Since(info.ModTime()) > orphanAge
	}
	defer func() { _ = file.Close() }()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
