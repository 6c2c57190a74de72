// Command assay-worker discovers the features of the host it runs on, and publishes them as a NodeFeature.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/assay-project/assay/internal/build"
)

const (
	// defaultGCPercent trades a little CPU, of which a worker needs next to none, for memory on every node.
	defaultGCPercent = 40
	// defaultMemoryLimit makes the collector work harder beyond what a large server needs; it refuses nothing.
	defaultMemoryLimit = 48 << 20
)

func main() {
	tune()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// tune makes the runtime small, unless the environment says otherwise: one thread runs Go code, since a worker is idle.
func tune() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(defaultGCPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(defaultMemoryLimit)
	}
}

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// run is the program without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage // the flag package has said why
	case opt.showVersion:
		_, _ = fmt.Fprintln(stdout, "assay-worker version", build.String())
		return exitOK
	}
	log := opt.logger(stderr)
	for _, w := range opt.warnings {
		log.Warn(w)
	}
	w, err := newWorker(opt, log)
	if err == nil {
		err = w.run(ctx, stdout)
	}
	if err != nil {
		log.Error("assay-worker stops", "error", err)
		return exitFailure
	}
	return exitOK
}
