//go:build linux

package cluster

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// loopback is the one address that everything listens on.
const loopback = "127.0.0.1"

// port is a TCP port on the loopback address that nobody else is given as long as it is held.
//
// It is held by a socket that is bound and does not listen. The kernel hands a port that is bound to nobody else, but lets
// a server that sets SO_REUSEADDR, as Go's do, bind it as well while the holder does not listen (socket(7), ip(7)). So
// there is no gap between choosing a port and using it, and a server that is restarted finds its port free.
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

// FreeAddress returns an address of the loopback interface that was free a moment ago, for a program beside the cluster.
func FreeAddress() (string, error) {
	p, err := holdPort()
	if err != nil {
		return "", err
	}
	defer p.release()
	return p.address(), nil
}

// release gives the port back.
func (p port) release() { _ = unix.Close(p.socket) }

func (p port) String() string { return fmt.Sprint(p.number) }

// address is the port with its host, as a URL or a flag has it.
func (p port) address() string { return fmt.Sprintf("%s:%d", loopback, p.number) }
