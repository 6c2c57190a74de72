// Package storage discovers block devices and their controllers.
package storage

import (
	"context"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "storage"

// Features of the source.
const (
	BlockFeature = "storage.block"
	// DeviceFeature is the name that NFD's documentation had for BlockFeature until v0.14; both hold the same.
	DeviceFeature = "storage.device"
	// NVMeFeature are the NVMe controllers, local and over a network.
	NVMeFeature = "storage.nvme"
)

// Source discovers block devices.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name is "storage".
func (Source) Name() string { return Name }

// Discover reads the block devices that are no partitions, see Documentation/ABI/stable/sysfs-block.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	const dir = "sys/block"
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, dir)
	if err != nil {
		return r, err
	}
	devices := make([]map[string]string, 0, len(names))
	for _, name := range names {
		device := map[string]string{"name": host.Clean([]byte(name))}
		queue := h.Resolve(dir+"/"+name) + "/queue"
		for _, err := range discovery.ReadOptional(h, queue, device, "dax", "rotational", "nr_zones", "zoned") {
			r.Problem(err)
		}
		devices = append(devices, device)
		if device["rotational"] == "0" {
			r.Labels["storage-nonrotationaldisk"] = "true"
		}
	}
	r.Instances(BlockFeature, devices)
	r.Instances(DeviceFeature, devices)
	nvme(&r, h)
	return r, nil
}

// nvme lists the NVMe controllers, see Documentation/ABI/testing/sysfs-nvme. Serial numbers and the addresses of targets are
// identities and stay private.
func nvme(r *discovery.Result, h host.Host) {
	const dir = "sys/class/nvme"
	names, err := discovery.ListDevices(h, dir)
	if err != nil {
		r.Problem(err)
		return
	}
	controllers := make([]map[string]string, 0, len(names))
	for _, name := range names {
		c := map[string]string{"name": host.Clean([]byte(name))}
		for _, err := range discovery.ReadOptional(h, h.Resolve(dir+"/"+name), c, "model", "firmware_rev", "transport", "cntrltype", "state", "numa_node") {
			r.Problem(err)
		}
		if c["numa_node"] == "-1" { // the firmware does not say which node it is
			delete(c, "numa_node")
		}
		controllers = append(controllers, c)
	}
	r.Instances(NVMeFeature, controllers)
}
