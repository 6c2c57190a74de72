package facts

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/bench"
)

// benchNode returns the features of one of the synthetic servers.
func benchNode(t testing.TB, name string) []byte {
	t.Helper()
	var object struct {
		Spec struct {
			Features json.RawMessage `json:"features"`
		} `json:"spec"`
	}
	bench.Read(t, name, &object)
	return object.Spec.Features
}

func TestDecodesBenchmarkNodes(t *testing.T) {
	for _, name := range []string{"node-0", "node-1", "node-4"} {
		compareWithEncodingJSON(t, string(benchNode(t, name)))
	}
}

func BenchmarkDecode(b *testing.B) {
	raw := benchNode(b, "node-0")
	b.Run("EncodingJSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var f nfdv1alpha1.Features
			if err := json.Unmarshal(raw, &f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Known", func(b *testing.B) {
		in := NewInterner()
		keep := decode(b, string(raw), in)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(string(raw), in); err != nil {
				b.Fatal(err)
			}
		}
		runtime.KeepAlive(keep)
	})
	b.Run("New", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(string(raw), NewInterner()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// fleetSize is the number of nodes of the fleet.
const fleetSize = 15_000

// BenchmarkFleetMemory reports the memory per node of a fleet of servers of one kind, which differ in name, serial number and
// virtual network cards.
func BenchmarkFleetMemory(b *testing.B) {
	raw := string(benchNode(b, "node-0"))
	for name, virtual := range map[string]bool{"WithoutVirtualNICs": false, "With60VirtualNICs": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				in, fleet := NewInterner(), make([]*Facts, fleetSize)
				for i := range fleet {
					fleet[i] = decode(b, nodeOfFleet(raw, i, virtual), in)
				}
				b.ReportMetric(float64(heap()-before)/fleetSize, "B/node")
				runtime.KeepAlive(in)
				runtime.KeepAlive(fleet)
			}
		})
	}
}

func nodeOfFleet(raw string, i int, virtual bool) string {
	raw = strings.ReplaceAll(raw, "node-00000", fmt.Sprintf("node-%05d", i))
	raw = strings.Replace(raw, `"bios_vendor":"AMI"`, fmt.Sprintf(`"bios_vendor":"AMI","product_serial":"SN%08d"`, i), 1)
	if virtual {
		return strings.ReplaceAll(raw, `"veth`, fmt.Sprintf(`"v%05d`, i))
	}
	from := strings.Index(raw, `"network.virtual":`)
	to := from + strings.Index(raw[from:], `]},`) + len(`]},`)
	return raw[:from] + raw[to:]
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
