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

// The program starts itself as the first process of new namespaces, and below it as the test. The first one does nothing but
// collect orphans, among them those that containers leave: who waits for children of its own cannot do that. Before, it starts
// itself to try what it will need, and to clean up should it be killed.
const (
	stageGuard = "guard"
	stageProbe = "probe"
	stageInit  = "init"
	stageTest  = "test"
)

// isolated runs the test in new network, mount and process namespaces. When the first process in them ends, the kernel ends
// all others, and with them go mounts, interfaces and packet filters.
func isolated(ctx context.Context, opt options) error {
	runtime.LockOSThread() // the parent-death signal comes when this thread ends (prctl(2))
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

// errInterrupted is the end of a test that somebody ended.
var errInterrupted = errors.New("interrupted")

// again is the program with the same options, for another stage.
func again(opt options, stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-stage="+stage, "-dir="+opt.dir, "-packages="+opt.packages, "-before="+opt.before, "-run="+opt.shell) //nolint:noctx // told to end by signals
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// errSaid is the end of a test that has said itself why it failed.
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

// sysctls are what the kubelet wants of the kernel. It sets them itself, for the whole machine, unless they are so already;
// so it is shown files that say what it wants to hear.
var sysctls = map[string]string{
	"vm/overcommit_memory":     "1",
	"vm/panic_on_oom":          "0",
	"kernel/panic":             "10",
	"kernel/panic_on_oops":     "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// mounts keeps what happens here from the rest of the machine.
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
	// /proc/sys for reading only, but for what belongs to the network namespace.
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
			continue // a kernel without it
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
	return ownDirs(opt.dir)
}

// ownDirs gives the namespace directories of its own where the kubelet, containerd and the CNI plugins keep things outside of
// their own directories, and where the chart looks for feature files by default. One that the machine does not have is not made
// there: its parent is made a layer that ends with the namespace.
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

// layerOver lays an empty layer in memory over a directory, unless there is one already.
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
