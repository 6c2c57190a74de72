//go:build linux

package cluster

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// loopback is the address on which all programs listen.
const loopback = "127.0.0.1"

// port is a TCP port on the loopback address that is reserved as long as it is held.
//
// It is held by a socket that is bound and does not listen. The kernel assigns a bound port to no other process, but a server that
// sets SO_REUSEADDR, as Go's do, can bind it too while the holder does not listen (socket(7), ip(7)). So there is no gap between
// choosing a port and using it, and a restarted server can use its port again.
type port struct {
	number int
	socket int
}

// holdPort chooses a free port and holds it.
func holdPort() (port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return port{}, fmt.Errorf("hold a port: %w", err)
	}
	fail := func(err error) (port, error) {
		return port{}, fmt.Errorf("hold a port: %w", errors.Join(err, unix.Close(socket)))
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail(err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail(err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		return fail(err)
	}
	inet, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return fail(fmt.Errorf("unexpected address %T", address))
	}
	return port{number: inet.Port, socket: socket}, nil
}

// FreeAddress returns an address of the loopback interface that was just free, for an additional program.
func FreeAddress() (string, error) {
	p, err := holdPort()
	if err != nil {
		return "", err
	}
	defer p.release()
	return p.address(), nil
}

// release releases the port.
func (p port) release() { _ = unix.Close(p.socket) }

func (p port) String() string { return fmt.Sprint(p.number) }

// address returns host:port.
func (p port) address() string { return fmt.Sprintf("%s:%d", loopback, p.number) }
