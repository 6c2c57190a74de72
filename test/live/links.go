//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// vethName is the prefix of the names of interfaces that are created.
const vethName = "assaylive"

// veth returns a function that creates and removes a pair of interfaces.
func veth(name string) func(bool) error {
	return func(on bool) error {
		if on {
			return ip("link", "add", name, "type", "veth", "peer", "name", name+"p")
		}
		return ip("link", "del", name)
	}
}

// usualMTU is the MTU of a new interface.
const usualMTU = 1500

// mtu returns a function that changes the MTU of an interface, and restores it.
func mtu(name string, size int) func(bool) error {
	return func(on bool) error {
		if !on {
			size = usualMTU
		}
		return ip("link", "set", name, "mtu", fmt.Sprint(size))
	}
}

// ip runs the program ip of iproute2.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput() //nolint:noctx // it takes milliseconds, and must also work after the context has ended
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), unix.Geteuid() != 0:
		return fmt.Errorf("%w: it takes ip and root", errImpossible)
	case errors.As(err, &exit):
		return fmt.Errorf("ip %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return err
}
