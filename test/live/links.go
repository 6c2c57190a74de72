//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// vethName begins the names of the interfaces that come and go.
const vethName = "assaylive"

// veth returns what creates and removes a pair of interfaces.
func veth(name string) func(bool) error {
	return func(on bool) error {
		if on {
			return ip("link", "add", name, "type", "veth", "peer", "name", name+"p")
		}
		return ip("link", "del", name)
	}
}

// usualMTU is that of a new interface.
const usualMTU = 1500

// mtu returns what changes the MTU of an interface, and changes it back.
func mtu(name string, size int) func(bool) error {
	return func(on bool) error {
		if !on {
			size = usualMTU
		}
		return ip("link", "set", name, "mtu", fmt.Sprint(size))
	}
}

// ip runs the program of that name, of iproute2.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput() //nolint:noctx // it takes milliseconds, and undoing must work after the end
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), unix.Geteuid() != 0:
		return fmt.Errorf("%w: it takes ip and root", errImpossible)
	case errors.As(err, &exit):
		return fmt.Errorf("ip %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return err
}
