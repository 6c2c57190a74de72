// Package builtin lists the sources that come with Assay.
package builtin

import (
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/cdi"
	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/crypto"
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

// Config is the hardware and system part of "sources" in the worker's configuration. Unmarshal over DefaultConfig: a list in the
// file replaces the default one, an absent one keeps it.
type Config struct {
	CPU    cpu.Config    `json:"cpu"`
	Kernel kernel.Config `json:"kernel"`
	PCI    pci.Config    `json:"pci"`
	USB    usb.Config    `json:"usb"`
}

// DefaultConfig returns the default configuration. The caller can modify it.
func DefaultConfig() Config {
	return Config{
		CPU:    cpu.DefaultConfig(),
		Kernel: kernel.DefaultConfig(),
		PCI:    pci.DefaultConfig(),
		USB:    usb.DefaultConfig(),
	}
}

// Sources returns the sources in the order in which they run. A new source only needs to be added here.
func Sources(c Config) []discovery.Source {
	return []discovery.Source{
		cdi.New(),
		cpu.New(c.CPU),
		crypto.New(),
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
