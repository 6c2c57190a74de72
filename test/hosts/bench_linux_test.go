package hosts_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// BenchmarkDiscovery runs a full discovery of a large server: 4,000 kernel options, 150 modules, 80 PCI devices, 60 network
// interfaces. "first" parses everything, as a worker does at startup; "again" is a later discovery. The goal is at most 15 ms of
// CPU time.
func BenchmarkDiscovery(b *testing.B) {
	h := large(b)
	b.Run("first", func(b *testing.B) {
		measure(b, func() *discovery.Report {
			return discovery.Run(context.Background(), h, builtin.Sources(builtin.DefaultConfig()))
		})
	})
	b.Run("again", func(b *testing.B) {
		r := discovery.NewRunner(h, builtin.Sources(builtin.DefaultConfig()), discovery.Everything)
		r.Run(context.Background())
		measure(b, func() *discovery.Report { return r.Run(context.Background()) })
	})
}

// BenchmarkDiscoveryOfThisMachine reads the real /sys and /proc, including the cost of system calls.
func BenchmarkDiscoveryOfThisMachine(b *testing.B) {
	h := host.Real(host.Paths{})
	measure(b, func() *discovery.Report {
		return discovery.Run(context.Background(), h, builtin.Sources(builtin.DefaultConfig()))
	})
}

func measure(b *testing.B, run func() *discovery.Report) {
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		if len(run().Labels) == 0 {
			b.Fatal("found nothing")
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// large returns the server with additional devices.
func large(b *testing.B) host.Host {
	h := open(b, "server")
	tree := h.FS.(*host.Tree)

	var config strings.Builder
	for i := range 4000 {
		switch i % 8 {
		case 0:
			fmt.Fprintf(&config, "CONFIG_SOME_TEXT_%d=\"a value of some length\"\n", i)
		case 1:
			fmt.Fprintf(&config, "CONFIG_SOME_NUMBER_%d=%d\n", i, i)
		case 2, 3, 4:
			fmt.Fprintf(&config, "CONFIG_SOME_MODULE_%d=m\n# CONFIG_WITHOUT_%d is not set\n", i, i)
		default:
			fmt.Fprintf(&config, "CONFIG_SOME_DRIVER_%d=y\n", i)
		}
	}
	tree.AddFile("boot/config-5.14.0-362.18.1.el9_3.x86_64", []byte(config.String()))

	var modules strings.Builder
	for i := range 150 {
		fmt.Fprintf(&modules, "module_%d 16384 0 - Live 0xffffffffc0200000\n", i)
	}
	tree.AddFile("proc/modules", []byte(modules.String()))

	for i := range 60 {
		dir := fmt.Sprintf("sys/devices/pci0001:00/0001:%02x:00.0", i)
		for file, value := range map[string]string{
			"class": "0x020000", "vendor": "0x15b3", "device": "0x101e", "subsystem_vendor": "0x15b3", "subsystem_device": "0x0016",
			"iommu_group/type": "DMA-FQ",
		} {
			tree.AddFile(dir+"/"+file, []byte(value+"\n"))
		}
		tree.AddLink(fmt.Sprintf("sys/bus/pci/devices/0001:%02x:00.0", i), "../../../devices/"+strings.TrimPrefix(dir, "sys/devices/"))
		net := fmt.Sprintf("%s/net/ens2f0v%d", dir, i)
		tree.AddLink(net+"/device", fmt.Sprintf("../../../0001:%02x:00.0", i))
		for file, value := range map[string]string{"operstate": "up", "speed": "100000", "mtu": "9000"} {
			tree.AddFile(net+"/"+file, []byte(value+"\n"))
		}
		tree.AddLink(fmt.Sprintf("sys/class/net/ens2f0v%d", i), "../../"+strings.TrimPrefix(net, "sys/"))
	}
	return h
}

// cpuTime returns the CPU time that this process has used, user and system.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
