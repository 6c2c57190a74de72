//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// programs returns Assay's processes in pods, by the name of the program and the command of the manager.
func programs() (map[string][]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := map[string][]int{}
	for _, dir := range dirs {
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.HasPrefix(string(command), "/usr/bin/assay-") {
			continue
		}
		args := strings.Split(string(command), "\x00")
		name := filepath.Base(args[0])
		if len(args) > 1 && !strings.HasPrefix(args[1], "-") { // a command, such as controller
			name = strings.TrimSpace(name + " " + args[1])
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			found[name] = append(found[name], pid)
		}
	}
	return found, nil
}

// process returns the process ID of a program that runs exactly once.
func process(name string) (int, error) {
	all, err := programs()
	if err != nil {
		return 0, err
	}
	if n := len(all[name]); n != 1 {
		return 0, fmt.Errorf("%s runs %d times, not once", name, n)
	}
	return all[name][0], nil
}

// size is the memory of a process in bytes (VmRSS and VmHWM in proc_pid_status(5)).
type size struct{ now, most uint64 }

func memoryOf(pid int) (size, error) {
	var s size
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(status)) {
		var kB uint64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			s.now = kB << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			s.most = kB << 10
		}
	}
	if s.now == 0 {
		return s, errors.New("process " + strconv.Itoa(pid) + " has no memory")
	}
	return s, nil
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

// memory measures the memory of the programs. It is reported without a limit, since hardware differs.
func memory(_ context.Context, s *story) error {
	all, err := programs()
	if err != nil {
		return err
	}
	var lines []string
	for name, pids := range all {
		for _, pid := range pids {
			size, err := memoryOf(pid)
			if err != nil {
				continue // it has just ended
			}
			lines = append(lines, fmt.Sprintf("%-24s %6s MB now, %6s MB at most", name, megabytes(size.now), megabytes(size.most)))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		s.figure("%s", line)
	}
	return nil
}

// imageSizes returns the compressed sizes of Assay's images.
func (m *machine) imageSizes() ([]string, error) {
	archives, err := filepath.Glob(m.path(imageDir + "/assay-*.oci.tar"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, archive := range archives {
		info, err := os.Stat(archive)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("image %s: %s MB, compressed", strings.TrimSuffix(filepath.Base(archive), ".oci.tar"), megabytes(uint64(info.Size()))))
	}
	return lines, nil
}
