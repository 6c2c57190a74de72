package builtin_test

import (
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// BenchmarkThisMachine is what a discovery of the machine that runs it costs, what one costs that remembers the first, and
// what a poll costs while nothing changes. Run it on the machine that you want to know it of.
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
