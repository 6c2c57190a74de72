// Package storage discovers block devices and their controllers.
package storage

import (
	"context"
	"slices"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "storage"

// Features of the source.
const (
	BlockFeature = "storage.block"
	// DeviceFeature is the name of BlockFeature in NFD's documentation until v0.14; both have the same content.
	DeviceFeature = "storage.device"
	// NVMeFeature lists the NVMe controllers, local and over fabrics.
	NVMeFeature = "storage.nvme"
)

// Source discovers block devices.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "storage".
func (Source) Name() string { return Name }

// Discover reads the block devices, without partitions, see Documentation/ABI/stable/sysfs-block.
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
		for _, err := range slices.Concat(
			discovery.ReadNumbers(h, queue, device, "dax", "rotational", "nr_zones"),
			discovery.ReadOptional(h, queue, device, "zoned"),
		) {
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

// nvme lists the NVMe controllers, see Documentation/ABI/testing/sysfs-nvme. It omits serial numbers and target addresses, which
// are identifying.
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
		controller := h.Resolve(dir + "/" + name)
		for _, err := range slices.Concat(
			discovery.ReadOptional(h, controller, c, "model", "firmware_rev", "transport", "cntrltype", "state"),
			discovery.NUMANode(h, controller, c),
		) {
			r.Problem(err)
		}
		controllers = append(controllers, c)
	}
	r.Instances(NVMeFeature, controllers)
}
