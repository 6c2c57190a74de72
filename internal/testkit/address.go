//go:build linux

package testkit

import (
	"net"
	"testing"
)

// FreeAddress returns an address of the loopback interface that nobody listened on a moment ago.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Port returns the port of an address.
func Port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
