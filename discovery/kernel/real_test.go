package kernel_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/kernel"
)

func TestFindsVersionOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	r, err := kernel.New(kernel.DefaultConfig()).Discover(context.Background(), host.Real(host.Paths{}))
	if err != nil {
		t.Fatal(err)
	}
	v := r.Features.Attributes[kernel.VersionFeature].Elements
	if v["full"] == "" || v["major"] == "" {
		t.Errorf("kernel.version = %v, want full and major", v)
	}
	if got := r.Labels["kernel-version.full"]; got != v["full"] {
		t.Errorf("label kernel-version.full = %q, want %q", got, v["full"])
	}
}
