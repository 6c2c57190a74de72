package main

import (
	"os"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/kernel"
	"github.com/assay-project/assay/discovery/memory"
	"github.com/assay-project/assay/discovery/network"
	"github.com/assay-project/assay/discovery/pci"
	"github.com/assay-project/assay/discovery/storage"
	"github.com/assay-project/assay/discovery/system"
	"github.com/assay-project/assay/discovery/usb"
)

// sources lists what a worker looks at.
func sources(c *config) []discovery.Source {
	return []discovery.Source{
		kernel.New(c.kernel),
		memory.New(),
		network.New(),
		pci.New(c.pci),
		storage.New(),
		system.New(),
		usb.New(c.usb),
	}
}

// hostPaths says where the host's directories are. In a container they are mounted as NFD's manifests do it, which is
// recognised by /host-sys.
func hostPaths(opt *options) host.Paths {
	paths := host.Paths{}
	_, err := os.Stat("/host-sys")
	if opt.hostPaths == "container" || opt.hostPaths == "auto" && opt.hostRoot == "" && err == nil {
		paths = host.ContainerPaths()
	}
	paths.Root = opt.hostRoot
	return paths
}
