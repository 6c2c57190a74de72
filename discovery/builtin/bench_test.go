package builtin_test

import (
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// BenchmarkThisMachine measures, on the machine that runs it, a first discovery, one that can reuse the results of the first, and a
// poll while nothing changes.
func BenchmarkThisMachine(b *testing.B) {
	first := func() *discovery.Runner {
		return discovery.NewRunner(host.Real(host.Paths{}), builtin.Sources(builtin.DefaultConfig()), discovery.Everything)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			first().Run(b.Context())
		}
	})
	again := first()
	again.Run(b.Context())
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			again.Run(b.Context())
		}
	})
	b.Run("poll", func(b *testing.B) {
		for b.Loop() {
			again.Poll(b.Context(), "cpu", "kernel", "memory", "rdma", "system")
		}
	})
}
