// Package storage discovers block devices.
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
	return r, nil
}
