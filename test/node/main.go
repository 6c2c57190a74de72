//go:build linux

// Command node installs the chart on a real node, and looks at what a user would see.
//
// It needs root and Linux, and builds everything else: Kubernetes, Helm and Assay's images from Go modules; containerd, runc
// and the CNI plugins are Debian's packages, which are used as they are installed, or downloaded and not installed. All of it
// runs in network, mount and process namespaces of its own, which end with the program, and in a cgroup of its own, which is
// removed. What it needs of the machine is tried before anything is built.
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
	require  bool
	download bool
	keep     bool
	shell    string
	// What the program tells itself.
	dir      string // of the run
	packages string // unpacked ones
	before   string // controllers of cgroup v2 that were on, separated by commas
	stage    string
}

func main() {
	opt := options{}
	flag.BoolVar(&opt.require, "require", false, "fail where the test cannot run, and do not skip it")
	flag.BoolVar(&opt.download, "download", true, "download missing Debian packages")
	flag.BoolVar(&opt.keep, "keep", false, "keep the logs also after a success")
	flag.StringVar(&opt.shell, "run", "", "`command` for sh, to be run in place of the tests, with kubectl and helm in its path")
	flag.StringVar(&opt.dir, "dir", "", "set by the program itself")
	flag.StringVar(&opt.packages, "packages", "", "set by the program itself")
	flag.StringVar(&opt.before, "before", "", "set by the program itself")
	flag.StringVar(&opt.stage, "stage", "", "set by the program itself")
	flag.Parse()
	if opt.stage == stageGuard {
		if err := asGuard(opt); err != nil {
			os.Exit(1) // nobody reads why
		}
		return
	}
	_ = cluster.EndWithParent(syscall.SIGTERM)                                  // without it only a comfort is missing
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin") // su leaves them out
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opt)
	stop()
	var skip skipped
	switch {
	case errors.As(err, &skip) && !opt.require:
		fmt.Printf("SKIPPED: the real-node test cannot run here:\n  %v\n", err)
	case err == errSaid && opt.stage == stageInit: //nolint:errorlint // just this: the outer program says so, with what else failed
		os.Exit(1)
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
	case stageProbe:
		return asProbe(ctx, opt)
	case stageInit:
		return asInit(ctx, opt)
	case stageTest:
		return inside(ctx, opt)
	}
	return fmt.Errorf("unknown stage %q", opt.stage)
}

// outside prepares what needs the machine's network and caches, and runs the rest in namespaces of its own.
func outside(ctx context.Context, opt options) (err error) {
	sweep(os.TempDir())
	dir, unlock, err := makeRunDir()
	if err != nil {
		return err
	}
	defer unlock()
	opt.dir = dir
	// What compilers and others leave when they are killed goes with the directory too.
	if err := os.Setenv("TMPDIR", filepath.Join(dir, tempDir)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	controllers := enabledControllers()
	endGuard, err := guard(opt, controllers)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer endGuard()
	defer cleanUp(opt, controllers, &err)
	if err := check(ctx, opt); err != nil {
		return err
	}
	if opt.packages, err = packages(ctx, opt.download); err != nil {
		return err
	}
	if opt.packages != "" {
		if err := probe(ctx, opt).skip(); err != nil {
			return err
		}
	}
	if err := build(ctx, dir); err != nil {
		return err
	}
	return isolated(ctx, opt)
}
