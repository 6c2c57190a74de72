//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The program starts itself as the first process of new namespaces, and that process starts the test. The first process only reaps
// orphans, for example those of containers, which a process that waits for its own children cannot do. Before that, the program
// starts itself to check requirements, and to clean up if it is killed.
const (
	stageGuard = "guard"
	stageProbe = "probe"
	stageInit  = "init"
	stageTest  = "test"
)

// isolated runs the test in new network, mount and process namespaces. When their first process ends, the kernel ends all others,
// and removes mounts, interfaces and packet filters.
func isolated(ctx context.Context, opt options) error {
	runtime.LockOSThread() // the parent-death signal is sent when this thread ends (prctl(2))
	cmd := again(opt, stageInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	err := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return errSaid
	}
	return nil
}

// errInterrupted is returned if the user interrupted the test.
var errInterrupted = errors.New("interrupted")

// again returns the command for another stage with the same options.
func again(opt options, stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-stage="+stage, "-dir="+opt.dir, "-packages="+opt.packages, "-before="+opt.before, "-run="+opt.shell) //nolint:noctx // ended by signals
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// errSaid is returned if the test has already printed why it failed.
var errSaid = errors.New("the test failed")

// asInit is the first process of the namespaces.
func asInit(ctx context.Context, opt options) error {
	if err := mounts(opt); err != nil {
		return fmt.Errorf("prepare the mount namespace: %w", err)
	}
	runtime.LockOSThread()
	cmd := again(opt, stageTest)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == cmd.Process.Pid && status.ExitStatus() == 0:
			return nil
		case pid == cmd.Process.Pid:
			return errSaid
		}
	}
}

// sysctls are the kernel settings that the kubelet requires. It would change them for the whole machine unless they are already
// set, so it sees files with the required values.
var sysctls = map[string]string{
	"vm/overcommit_memory":     "1",
	"vm/panic_on_oom":          "0",
	"kernel/panic":             "10",
	"kernel/panic_on_oops":     "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// mounts isolates the mounts of the test from the rest of the machine.
func mounts(opt options) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := overlay(opt.packages); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	// /proc/sys is read-only, except for the network namespace.
	bind := func(source, target string, flags uintptr) error {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", source, target, err)
		}
		if flags == 0 {
			return nil
		}
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	}
	if err := bind("/proc/sys", "/proc/sys", unix.MS_RDONLY); err != nil {
		return err
	}
	if err := bind("/proc/sys/net", "/proc/sys/net", 0); err != nil {
		return err
	}
	if err := unix.Mount("", "/proc/sys/net", "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		return err
	}
	for key, value := range sysctls {
		target := filepath.Join("/proc/sys", key)
		if _, err := os.Stat(target); err != nil {
			continue // not supported by this kernel
		}
		file := filepath.Join(opt.dir, "sysctl", filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, target, 0); err != nil {
			return err
		}
	}
	if err := ownDirs(opt.dir); err != nil {
		return err
	}
	hosts := filepath.Join(opt.dir, "hosts") // after a layer over /etc, which would hide it
	if err := os.WriteFile(hosts, []byte(hostsFile()), 0o644); err != nil {
		return err
	}
	return bind(hosts, "/etc/hosts", 0)
}

// ownDirs gives the namespace separate directories where the kubelet, containerd and the CNI plugins write outside of their own
// directories, and where the chart expects feature files by default. If a directory does not exist on the machine, its parent
// becomes an overlay that ends with the namespace.
func ownDirs(dir string) error {
	layers := filepath.Join(dir, "layers")
	for _, path := range []string{"/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/etc/cni", "/etc/kubernetes"} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if err := layerOver(filepath.Dir(path), layers); err != nil {
				return err
			}
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
	}
	return nil
}

// layerOver mounts an empty layer in memory over a directory, unless there is one already.
func layerOver(path, layers string) error {
	layer := filepath.Join(layers, strings.ReplaceAll(strings.Trim(path, "/"), "/", "-"))
	if err := os.MkdirAll(layer, 0o755); err != nil {
		return err
	}
	upper, work := filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	if _, err := os.Stat(upper); err == nil {
		return nil
	}
	if err := unix.Mount("tmpfs", layer, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount over %s: %w", layer, err)
	}
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work)
	if err := unix.Mount("overlay", path, "overlay", 0, options); err != nil {
		return fmt.Errorf("lay a layer over %s: %w", path, err)
	}
	return nil
}
