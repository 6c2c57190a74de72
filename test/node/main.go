//go:build linux

// Command node installs the chart on a real node, and checks what a user would see.
//
// It requires root and Linux, and builds everything else: Kubernetes, Helm and Assay's images from Go modules; containerd, runc and
// the CNI plugins are Debian packages, which are used if installed, else downloaded without installing them. Everything runs in
// separate network, mount and process namespaces, which end with the program, and in a separate cgroup, which is removed. It checks
// the requirements on the machine before building anything.
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

// options are the command line options, which the inner program gets too.
type options struct {
	require  bool
	download bool
	keep     bool
	shell    string
	// For the inner program.
	dir      string // of the run
	packages string // unpacked ones
	before   string // cgroup v2 controllers that were enabled, separated by commas
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
			os.Exit(1) // its error is not shown
		}
		return
	}
	_ = cluster.EndWithParent(syscall.SIGTERM)                                  // only a convenience
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin") // su omits them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, opt)
	stop()
	var skip skipped
	switch {
	case errors.As(err, &skip) && !opt.require:
		fmt.Printf("SKIPPED: the real-node test cannot run here:\n  %v\n", err)
	case err == errSaid && opt.stage == stageInit: //nolint:errorlint // exactly this error: the outer program prints it, with other failures
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// skipped is why the test cannot run on this machine.
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

// outside prepares what needs the machine's network and caches, and runs the rest in new namespaces.
func outside(ctx context.Context, opt options) (err error) {
	sweep(os.TempDir())
	dir, unlock, err := makeRunDir()
	if err != nil {
		return err
	}
	defer unlock()
	opt.dir = dir
	// Temporary files of killed compilers are removed with the directory, too.
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
