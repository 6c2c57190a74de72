package publish

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence has the kernel give up a connection whose other end does not acknowledge what was sent, which it would
// otherwise send again for a quarter of an hour; see TCP_USER_TIMEOUT in tcp(7). A kernel that cannot leaves that to pings.
func limitSilence(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}
