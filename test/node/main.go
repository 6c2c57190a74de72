//go:build linux

// Command node installs the chart on a real node, and looks at what a user would see.
//
// It needs root and Linux, and builds everything else: Kubernetes, Helm and Assay's images from Go modules; containerd, runc
// and the CNI plugins are Debian's packages. All of it runs in network, mount and process namespaces of its own, which end
// with the program, and in a cgroup of its own, which is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/assay-project/assay/test/cluster"
)

// options are what the command line says; the inner program is given the same.
type options struct {
	require bool
	install bool
	keep    bool
	dir     string
	stage   string
	shell   string
}

func main() {
	opt := options{}
	flag.BoolVar(&opt.require, "require", false, "fail where the test cannot run, and do not skip it")
	flag.BoolVar(&opt.install, "install", true, "install missing Debian packages")
	flag.BoolVar(&opt.keep, "keep", false, "keep the logs also after a success")
	flag.StringVar(&opt.shell, "run", "", "`command` for sh, to be run in place of the tests, with kubectl and helm in its path")
	flag.StringVar(&opt.dir, "dir", "", "set by the program itself")
	flag.StringVar(&opt.stage, "stage", "", "set by the program itself")
	flag.Parse()
	_ = cluster.EndWithParent(syscall.SIGTERM) // without it only a comfort is missing
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opt)
	stop()
	var skip skipped
	switch {
	case errors.As(err, &skip) && !opt.require:
		fmt.Println("SKIPPED: the real-node test cannot run here:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// skipped says why the test cannot run on this machine.
type skipped struct{ why string }

func (s skipped) Error() string { return s.why }

func run(ctx context.Context, opt options) error {
	switch opt.stage {
	case "":
		return outside(ctx, opt)
	case stageInit:
		return asInit(opt)
	case stageTest:
		return inside(ctx, opt)
	}
	return fmt.Errorf("unknown stage %q", opt.stage)
}

// outside prepares what needs the machine's network and caches, and runs the rest in namespaces of its own.
func outside(ctx context.Context, opt options) error {
	if err := check(); err != nil {
		return err
	}
	if err := packages(ctx, opt.install); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "assay-node-")
	if err != nil {
		return err
	}
	opt.dir = dir
	if err := build(ctx, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	err = isolated(ctx, opt)
	if cleanUp := removeCgroups(cgroupName(dir)); cleanUp != nil {
		err = errors.Join(err, cleanUp)
	}
	if err != nil || opt.keep {
		fmt.Println("the logs are in", filepath.Join(dir, "cluster", "log"))
		return err
	}
	return os.RemoveAll(dir)
}
