package publish

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence makes the kernel close a connection whose peer does not acknowledge sent data, which the kernel would otherwise
// retransmit for a quarter of an hour; see TCP_USER_TIMEOUT in tcp(7). If the kernel does not support it, pings detect the dead
// connection.
func limitSilence(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}
