//go:build !linux

package watch

import (
	"context"
	"errors"

	"github.com/assay-project/assay/discovery/host"
)

// Host watches nothing: only Linux tells what happens to its devices.
type Host struct{}

// Open returns a Host that is never notified.
func Open([]Target) (*Host, []error) {
	return &Host{}, []error{errors.New("host events are supported on Linux only")}
}

// Files is false.
func (*Host) Files() bool { return false }

// Devices is false.
func (*Host) Devices() bool { return false }

// Covered is nothing.
func (*Host) Covered(host.Host) []string { return nil }

// Run waits until ctx is done.
func (*Host) Run(ctx context.Context, _ func(source string)) { <-ctx.Done() }
