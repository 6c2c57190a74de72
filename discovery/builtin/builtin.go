// Package builtin lists the sources that come with Assay.
package builtin

import (
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/gpu"
	"github.com/assay-project/assay/discovery/kernel"
	"github.com/assay-project/assay/discovery/memory"
	"github.com/assay-project/assay/discovery/network"
	"github.com/assay-project/assay/discovery/pci"
	"github.com/assay-project/assay/discovery/rdma"
	"github.com/assay-project/assay/discovery/storage"
	"github.com/assay-project/assay/discovery/system"
	"github.com/assay-project/assay/discovery/usb"
)

// Config is the part of the worker's configuration under "sources" that concerns hardware and system. Start with
// DefaultConfig and unmarshal over it: a list that the user writes replaces the default one, an absent one keeps it.
type Config struct {
	CPU    cpu.Config    `json:"cpu"`
	Kernel kernel.Config `json:"kernel"`
	PCI    pci.Config    `json:"pci"`
	USB    usb.Config    `json:"usb"`
}

// DefaultConfig returns the configuration of a worker without one. The caller may change it.
func DefaultConfig() Config {
	return Config{
		CPU:    cpu.DefaultConfig(),
		Kernel: kernel.DefaultConfig(),
		PCI:    pci.DefaultConfig(),
		USB:    usb.DefaultConfig(),
	}
}

// Sources returns the sources in the order in which they run. It is the one list of them: a new source is a line here.
func Sources(c Config) []discovery.Source {
	return []discovery.Source{
		cpu.New(c.CPU),
		gpu.New(),
		kernel.New(c.Kernel),
		memory.New(),
		network.New(),
		pci.New(c.PCI),
		rdma.New(),
		storage.New(),
		system.New(),
		usb.New(c.USB),
	}
}
