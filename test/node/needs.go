//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// needed maps each program to the Debian package that has it.
var needed = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{cniDir + "/bridge", "containernetworking-plugins"},
	{cniDir + "/host-local", "containernetworking-plugins"},
}

// cniDir is where Debian has the CNI plugins.
const cniDir = "/usr/lib/cni"

// check says what this machine lacks that cannot be installed.
func check() error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "it needs root, to make namespaces and run containers")
	}
	if fs, err := cgroups(); err != nil {
		missing = append(missing, err.Error())
	} else if fs == unix.CGROUP2_SUPER_MAGIC && os.Getenv("ASSAY_NODE_CGROUP2") == "" {
		missing = append(missing, "this machine has cgroup v2, on which the test was never tried; set ASSAY_NODE_CGROUP2=1 to try")
	}
	for _, controller := range []string{"memory", "cpu", "cpuset", "pids"} {
		if _, err := os.Stat(filepath.Join(cgroupRoot, controller)); err != nil && isV1() {
			missing = append(missing, "there is no cgroup controller "+controller)
		}
	}
	if len(missing) > 0 {
		return skipped{strings.Join(missing, "; ")}
	}
	return nil
}

// packages installs what is missing, if it may and can.
func packages(ctx context.Context, install bool) error {
	var missing []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil {
			missing = append(missing, n.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, ", ")
	if !install {
		return skipped{"these Debian packages are missing: " + list}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return skipped{"these programs' packages are missing, and there is no apt-get to install them: " + list}
	}
	fmt.Println("node: installing Debian packages:", list)
	// The packages would start their daemons; a policy that says no is Debian's way to prevent it (policy-rc.d).
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return err
		}
		defer func() { _ = os.Remove(policy) }()
	}
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return skipped{fmt.Sprintf("apt-get %s: %v: %s", args[0], err, lastLine(out))}
		}
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
