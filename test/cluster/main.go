//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the main function of a program that starts a control plane. The context ends with SIGINT, with SIGTERM, and with the parent of the
// process, so that run can stop what it started. An error is printed behind the name of the program, whose exit code is then 1.
func Main(name string, run func(context.Context) error) {
	_ = EndWithParent(syscall.SIGTERM) // only a convenience
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
