//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are the namespaces of the test.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID

// probe tries the kernel operations of the test in new namespaces, and returns those that fail.
func probe(ctx context.Context, opt options) missing {
	cmd := again(opt, stageProbe)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := cmd.Start(); err != nil {
		return missing{"there are no new network, mount and process namespaces: " + err.Error()}
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return missing{fmt.Sprintf("the attempt to prepare a node failed: %v: %s", err, lastLine(stderr.Bytes()))}
	}
	// Cgroups that were not removed inside because they might not have been empty.
	if err := removeCgroups(cgroupName(opt.dir)); err != nil {
		return missing{err.Error()}
	}
	return strings.FieldsFunc(stdout.String(), func(r rune) bool { return r == '\n' })
}

// asProbe is the inner part of probe. Each line that it prints is an operation that failed.
func asProbe(ctx context.Context, opt options) error {
	say := func(what string, err error) bool {
		if err != nil {
			fmt.Println(strings.ReplaceAll(what+": "+strings.TrimSpace(err.Error()), "\n", " "))
		}
		return err == nil
	}
	say("cgroups cannot be made", tryCgroups(cgroupName(opt.dir)))
	if !say("mounts cannot be made", mounts(opt)) {
		return nil
	}
	if _, err := exec.LookPath("ip"); err == nil {
		if say("no network with a pair of virtual Ethernet devices can be made", network(ctx)) {
			_, err := output(ctx, "/", "ip", "link", "add", "cni0", "type", "bridge")
			say("no bridge for pods can be made", err)
		}
	}
	if _, err := exec.LookPath("iptables"); err == nil {
		say("packets cannot be filtered as kube-proxy does", tryFilters(ctx))
	}
	return nil
}

// tryCgroups creates the test's cgroup and enters it.
func tryCgroups(name string) error {
	if err := makeCgroups(name); err != nil {
		return err
	}
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, name, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tryFilters adds rules with every match and target that kube-proxy uses in this test.
func tryFilters(ctx context.Context) error {
	for _, rule := range []string{
		"-t nat -A POSTROUTING -m comment --comment x -j MASQUERADE --random-fully",
		"-t nat -A PREROUTING -m addrtype --dst-type LOCAL -m statistic --mode random --probability 0.5 -p tcp -j DNAT --to-destination 10.0.0.1:1",
		"-t nat -A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
		"-t nat -A OUTPUT -j MARK --or-mark 0x4000",
		"-t filter -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	} {
		if _, err := output(ctx, "/", "iptables", append([]string{"-w"}, strings.Fields(rule)...)...); err != nil {
			return err
		}
	}
	return nil
}

// snapshotter returns containerd's snapshotter: overlayfs if the kernel supports it in dir, which it does not in a container that
// uses overlayfs itself; otherwise native.
func snapshotter(dir string) string {
	try := filepath.Join(dir, "overlay")
	defer func() { _ = os.RemoveAll(try) }()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(try, name), 0o755); err != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", try)
	if err := unix.Mount("overlay", try+"/merged", "overlay", 0, options); err != nil {
		return "native"
	}
	_ = unix.Unmount(try+"/merged", 0)
	return "overlayfs"
}
