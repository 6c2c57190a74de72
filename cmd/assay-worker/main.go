// Command assay-worker discovers the features of the host and publishes them as a NodeFeature. With the argument "topology" it publishes
// what pods hold of each NUMA node as a NodeResourceTopology.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/worker"
	"github.com/assay-project/assay/internal/worker/memory"
)

func main() {
	memory.Tune()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// run runs the program with the given arguments and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == topologyVerb {
		return runTopology(ctx, args[1:], stdout, stderr)
	}
	opt, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage // the flag package has printed the error
	case opt.showVersion:
		_, _ = fmt.Fprintln(stdout, "assay-worker version", build.String())
		return exitOK
	}
	log := opt.logger(stderr)
	for _, w := range opt.warnings {
		log.Warn("Configuration warning", "warning", w)
	}
	w, err := worker.New(opt.Options, log)
	return execute(ctx, w, err, log, "assay-worker", stdout)
}

// execute runs a worker, unless it could not be created, and returns the exit code.
func execute(ctx context.Context, w interface {
	Run(ctx context.Context, stdout io.Writer) error
}, err error, log *slog.Logger, name string, stdout io.Writer) int {
	if err == nil {
		err = w.Run(ctx, stdout)
	}
	if err != nil {
		log.Error("Stopping because of an error", "program", name, "error", err)
		return exitFailure
	}
	return exitOK
}
