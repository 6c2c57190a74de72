//go:build !linux

package publish

import "syscall"

// limitSilence does nothing: keep-alives and pings detect dead connections.
func limitSilence(_, _ string, _ syscall.RawConn) error { return nil }
