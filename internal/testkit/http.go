//go:build linux

package testkit

import (
	"context"
	"net"
	"testing"

	"github.com/assay-project/assay/test/cluster"
)

// FreeAddress returns a free address on the loopback interface.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := cluster.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Port returns the port of an address.
func Port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// Get is cluster.Get.
func Get(ctx context.Context, url string) (string, error) { return cluster.Get(ctx, url) }
