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

// Names in a cluster's directory.
const (
	stateFile      = "cluster.json"
	lockFile       = "lock"
	kubeconfigFile = "kubeconfig"
	etcdDataDir    = "etcd"
	logDir         = "log"
	pkiDir         = "pki"
)

// tempPrefix is the prefix of directories that Start created.
const tempPrefix = "assay-cluster-"

// orphanAge is the age after which a directory without a lock is considered abandoned: longer than creating it takes.
const orphanAge = time.Hour

// state is the data with which another process can use or stop a cluster.
type state struct {
	Server    string          `json:"server"`
	Programs  kube.Programs   `json:"programs"`
	Processes []processRecord `json:"processes"`
}

// processRecord identifies a process: process IDs are reused, but not together with a start time.
type processRecord struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Started string `json:"started"` // in clock ticks since boot, as in /proc/PID/stat
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

// Down stops the detached cluster that was started in dir, and removes the directory. It is not an error if there is none.
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

// kill kills the process and waits until it has ended. It does nothing if the ID belongs to another process now.
func (r processRecord) kill() error {
	process, err := os.FindProcess(r.PID) // refers to this process only: later calls cannot affect another one
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

// killTimeout is the maximum time between SIGKILL and the end of a process: only one that hangs in the kernel takes longer.
const killTimeout = 10 * time.Second

// alive reports whether the recorded process exists.
func (r processRecord) alive() bool {
	started, zombie, err := procStat(r.PID)
	return err == nil && started == r.Started && !zombie
}

// procStat returns when a process started and whether it is a zombie (proc(5)).
func procStat(pid int) (started string, zombie bool, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, err
	}
	// The second field is the program's name in parentheses, which can contain any character; field 3 follows the last ")".
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	fields := strings.Fields(rest)
	const state, startTime = 0, 19 // fields 3 and 22
	if len(fields) <= startTime {
		return "", false, fmt.Errorf("process %d: unexpected /proc/%d/stat", pid, pid)
	}
	return fields[startTime], fields[state] == "Z", nil
}

// makeDir creates the directory of a cluster: the given one, which must be new or empty, or a temporary one. A temporary one is
// locked as long as this process lives.
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

// lockDir marks a directory as in use. The file is locked before it gets its name, so that no other process sees it unlocked.
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

// sweep removes the directories of earlier clusters whose program was killed. It ignores errors.
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

// abandoned reports whether no living process holds the lock of a directory.
func abandoned(dir string) bool {
	file, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		info, err := os.Stat(dir)
		return err == nil && time.Since(info.ModTime()) > orphanAge
	}
	defer func() { _ = file.Close() }()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
