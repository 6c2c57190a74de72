package hosts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/cpu"
)

// TestCountsAreThoseOfTheMachine compares the numbers of CPUs, cores and sockets, the caches and the identification with what is known
// of the machines: their data sheets, and what lscpu prints on such a machine.
func TestCountsAreThoseOfTheMachine(t *testing.T) {
	for name, want := range map[string]struct{ topology, caches, model string }{
		"a64fx": {
			"48 CPUs, 48 cores, 1 sockets, threads false",
			"l1d.bytes=65536 l1i.bytes=65536 l2.bytes=8388608 l2.count=4",
			"Fujitsu, family 31, id 16, hypervisor -, name -",
		},
		"armv7": {
			"8 CPUs, 8 cores, 1 sockets, threads false",
			"l1d.bytes=32768 l1i.bytes=32768 l2.bytes=2097152 l2.count=2",
			"ARM, family 15, id 49267, hypervisor -, name ARMv7 Processor rev 3 (v7l)",
		},
		"epyc": {
			"192 CPUs, 96 cores, 1 sockets, threads true",
			"l1d.bytes=32768 l1i.bytes=32768 l2.bytes=1048576 l3.bytes=33554432 l3.count=12",
			"AMD, family 25, id 17, hypervisor none, name AMD EPYC 9654 96-Core Processor",
		},
		"loongarch": {
			"4 CPUs, 4 cores, 1 sockets, threads false",
			"l1d.bytes=65536 l1i.bytes=65536 l2.bytes=262144 l3.bytes=16777216 l3.count=1",
			"-, family -, id -, hypervisor -, name Loongson-3A5000",
		},
		"power8": {
			"8 CPUs, 8 cores, 2 sockets, threads false",
			"l1d.bytes=65536 l1i.bytes=32768 l2.bytes=524288 l3.bytes=8388608 l3.count=8",
			"-, family -, id -, hypervisor -, name POWER8E (raw), altivec supported",
		},
		"power9": {
			"16 CPUs, 4 cores, 2 sockets, threads true",
			"l1d.bytes=32768 l1i.bytes=32768 l2.bytes=524288 l3.bytes=10485760 l3.count=2",
			"-, family -, id -, hypervisor -, name POWER9, altivec supported",
		},
		"power10": {
			"16 CPUs, 2 cores, 1 sockets, threads true",
			"l1d.bytes=32768 l1i.bytes=49152 l2.bytes=1048576 l3.bytes=4194304 l3.count=2",
			"-, family -, id -, hypervisor -, name POWER10 (architected), altivec supported",
		},
		"riscv": {
			"4 CPUs, 4 cores, - sockets, threads false",
			"l1d.bytes=32768 l1i.bytes=32768 l2.bytes=2097152 l2.count=1",
			"-, family -, id -, hypervisor -, name sifive,u74-mc",
		},
		"vmware": {
			"4 CPUs, 4 cores, 4 sockets, threads false",
			"l1d.bytes=32768 l1i.bytes=32768 l2.bytes=1048576 l3.bytes=23068672 l3.count=4",
			"Intel, family 6, id 85, hypervisor vmware, name Intel(R) Xeon(R) Gold 6226R CPU @ 2.90GHz",
		},
		"zlpar": {
			"7 CPUs, 4 cores, 2 sockets, threads true",
			"l1d.bytes=131072 l1i.bytes=131072 l2d.bytes=4194304 l2i.bytes=2097152 l3.bytes=134217728 l3.count=2",
			"IBM_S390, family 0133E8, id 3906, hypervisor none, name -",
		},
		"zvm": {
			"2 CPUs, 2 cores, 2 sockets, threads false",
			"",
			"IBM_S390, family 233EF7, id 2964, hypervisor z_VM_7.3.0, name -",
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := discover(t, open(t, name))
			get := func(feature, element string) string {
				if v, ok := report.Features.Attributes[feature].Elements[element]; ok {
					return v
				}
				return "-"
			}
			topology := fmt.Sprintf("%s CPUs, %s cores, %s sockets, threads %s", get(cpu.TopologyFeature, "cpu_count"),
				get(cpu.TopologyFeature, "core_count"), get(cpu.TopologyFeature, "socket_count"), get(cpu.TopologyFeature, "hardware_multithreading"))
			model := fmt.Sprintf("%s, family %s, id %s, hypervisor %s, name %s", get(cpu.ModelFeature, "vendor_id"), get(cpu.ModelFeature, "family"),
				get(cpu.ModelFeature, "id"), get(cpu.ModelFeature, "hypervisor"), get(cpu.ModelFeature, "name"))
			var caches []string
			for _, element := range []string{
				"l1d.bytes", "l1i.bytes", "l2.bytes", "l2d.bytes", "l2i.bytes", "l3.bytes", "l2.count", "l3.count",
			} {
				if v := get(cpu.CacheFeature, element); v != "-" {
					caches = append(caches, element+"="+v)
				}
			}
			for _, diff := range []string{
				cmp.Diff(want.topology, topology), cmp.Diff(want.caches, strings.Join(caches, " ")), cmp.Diff(want.model, model),
			} {
				if diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}
