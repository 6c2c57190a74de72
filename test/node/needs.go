//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Requirements of a run; with less the kubelet would not accept pods, or the kernel would kill processes.
const (
	diskNeeded   = 1 << 30 // images twice, packed and unpacked, and etcd
	memoryNeeded = 3 << 29 // the control plane 0.6 GB, the node 0.3 GB, pods 0.3 GB
)

// check returns all unmet requirements: first those that can be checked here, then those that must be tried.
func check(ctx context.Context, opt options) error {
	if os.Geteuid() != 0 {
		return missing{"it needs root, to make namespaces and run containers"}.skip()
	}
	var lacks missing
	if names := missingCapabilities(); len(names) > 0 {
		lacks = append(lacks, "root lacks the capabilities "+strings.Join(names, ", ")+" here (docker run has --privileged)")
	}
	lacks = append(lacks, missingControllers()...)
	// The kubelet reads OOM kills from there, and does not start without it.
	if file, err := os.Open("/dev/kmsg"); err != nil {
		lacks = append(lacks, "the kernel's log cannot be read: "+err.Error())
	} else {
		_ = file.Close()
	}
	lacks = append(lacks, missingRoom(opt.dir)...)
	if len(lacks) == 0 {
		lacks = probe(ctx, opt)
	}
	return lacks.skip()
}

// missing lists unmet requirements, one sentence each.
type missing []string

// skip returns the error that skips the test; nil if nothing is missing.
func (m missing) skip() error {
	if len(m) == 0 {
		return nil
	}
	return skipped{strings.Join(m, "\n  ")}
}

// missingRoom checks for enough disk and memory.
func missingRoom(dir string) missing {
	var lacks missing
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil {
		free := fs.Bavail * uint64(fs.Bsize)
		// The kubelet uses percentages, and is configured to evict at 1 %.
		if free < diskNeeded || fs.Bavail < fs.Blocks/50 {
			lacks = append(lacks, fmt.Sprintf("%s has %d MB left, and %d MB and 2 %% are needed; TMPDIR names another place", filepath.Dir(dir), free>>20, diskNeeded>>20))
		}
	}
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return lacks
	}
	for line := range strings.Lines(string(data)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); n == 1 && kb<<10 < memoryNeeded {
			lacks = append(lacks, fmt.Sprintf("%d MB of memory are available, and %d MB are needed", kb>>10, memoryNeeded>>20))
		}
	}
	return lacks
}

// capabilities are those that the test and the runtime use, and the default ones of a container: a process can only grant
// capabilities that it has.
var capabilities = map[string]int{
	"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN,
	"CAP_AUDIT_WRITE": unix.CAP_AUDIT_WRITE, "CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
	"CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID, "CAP_KILL": unix.CAP_KILL, "CAP_MKNOD": unix.CAP_MKNOD,
	"CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SETFCAP": unix.CAP_SETFCAP,
	"CAP_SETGID": unix.CAP_SETGID, "CAP_SETPCAP": unix.CAP_SETPCAP, "CAP_SETUID": unix.CAP_SETUID, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT,
}

// missingCapabilities returns capabilities that this process lacks (capabilities(7), CapEff in proc(5)).
func missingCapabilities() []string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "CapEff:")
		if !ok {
			continue
		}
		has, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err != nil {
			return nil
		}
		var names []string
		for name, bit := range capabilities {
			if has&(1<<bit) == 0 {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	return nil
}

// missingControllers returns missing cgroup controllers that limit a pod.
func missingControllers() missing {
	fs, err := cgroups()
	if err != nil {
		return missing{err.Error()}
	}
	if fs == unix.CGROUP2_SUPER_MAGIC {
		has, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
		if err != nil {
			return missing{err.Error()}
		}
		on := strings.Fields(string(has))
		lacks := slices.DeleteFunc(slices.Clone(v2Controllers), func(c string) bool { return slices.Contains(on, c) })
		if len(lacks) > 0 {
			return missing{fmt.Sprintf("cgroup v2 at %s lacks the controllers %s (docker run has --cgroupns=host)", cgroupRoot, strings.Join(lacks, ", "))}
		}
		return nil
	}
	lacks := slices.DeleteFunc([]string{"cpu", "cpuacct", "cpuset", "devices", "memory", "pids"}, func(c string) bool {
		_, err := os.Stat(filepath.Join(cgroupRoot, c))
		return err == nil
	})
	if len(lacks) > 0 {
		return missing{fmt.Sprintf("cgroup v1 at %s lacks the controllers %s", cgroupRoot, strings.Join(lacks, ", "))}
	}
	return nil
}
