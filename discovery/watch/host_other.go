//go:build !linux

package watch

import (
	"context"
	"errors"

	"github.com/assay-project/assay/discovery/host"
)

// Host watches nothing: events are supported on Linux only.
type Host struct{}

// Open returns a Host without events.
func Open([]Target) (*Host, []error) {
	return &Host{}, []error{errors.New("host events are supported on Linux only")}
}

// Files returns false.
func (*Host) Files() bool { return false }

// Devices returns false.
func (*Host) Devices() bool { return false }

// Covered returns nil.
func (*Host) Covered(host.Host) []string { return nil }

// Run waits until ctx is done.
func (*Host) Run(ctx context.Context, _ func(source string)) { <-ctx.Done() }
