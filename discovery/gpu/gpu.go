// Package gpu discovers graphics and compute devices that have a driver.
package gpu

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "gpu"

// Features of the source: a device without a driver, or with one of another kind such as vfio-pci, is only in pci.device.
const (
	// DRMFeature lists the devices of the kernel's Direct Rendering Manager: GPUs with a driver.
	DRMFeature = "gpu.drm"
	// AccelFeature lists the devices of the kernel's subsystem for compute accelerators, such as neural processing units.
	AccelFeature = "gpu.accel"
)

const (
	// drmDir contains cards, their connectors and render nodes, see Documentation/gpu/drm-uapi.rst.
	drmDir = "sys/class/drm"
	// accelDir contains accelerators, see Documentation/accel/introduction.rst.
	accelDir = "sys/class/accel"
)

// Source discovers GPUs.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "gpu".
func (Source) Name() string { return Name }

// Discover reads all cards, accelerators and GPUs of the NVIDIA driver, in the order of their names.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	if err := list(&r, h, DRMFeature, drmDir, "card", readCard); err != nil {
		return r, err
	}
	if err := list(&r, h, AccelFeature, accelDir, "accel", readDevice); err != nil {
		return r, err
	}
	// A GPU that the driver does not reach can make reading its files slow, but it must not hide the other features.
	r.Problem(nvidia(&r, h))
	return r, nil
}

// list publishes the numbered devices of a class, such as card0.
func list(r *discovery.Result, h host.Host, feature, dir, prefix string, read func(*discovery.Result, host.Host, string, map[string]string)) error {
	entries, err := discovery.ListDevices(h, dir)
	if err != nil {
		return err
	}
	devices := []map[string]string{}
	for _, entry := range entries {
		if number, ok := strings.CutPrefix(entry, prefix); ok && digits(number) {
			device := map[string]string{"name": entry}
			read(r, h, h.Resolve(dir+"/"+entry+"/device"), device)
			devices = append(devices, device)
		}
	}
	r.Instances(feature, devices)
	return nil
}

// readDevice adds the driver, the PCI IDs and the NUMA node of a device.
func readDevice(r *discovery.Result, h host.Host, dir string, device map[string]string) {
	if driver, err := h.ReadLink(dir + "/driver"); err == nil {
		device["driver"] = host.Clean([]byte(path.Base(driver)))
	} else {
		r.Problem(host.Present(err))
	}
	ids := map[string]string{}
	for _, err := range append(discovery.ReadOptional(h, dir, ids, "vendor", "device"), discovery.NUMANode(h, dir, device)...) {
		r.Problem(err)
	}
	for name, value := range ids {
		if id, ok := discovery.Hex(value, 4); ok {
			device[name] = id
		} else {
			r.Problem(discovery.NotA("PCI "+name, dir+"/"+name, value))
		}
	}
}

// readCard adds what is known of a card.
func readCard(r *discovery.Result, h host.Host, dir string, card map[string]string) {
	readDevice(r, h, dir, card)
	// mem_info_vram_total is specific to amdgpu, see Documentation/gpu/amdgpu/driver-misc.rst.
	const vram = "mem_info_vram_total"
	memory := map[string]string{}
	for _, err := range discovery.ReadNumbers(h, dir, memory, vram) {
		r.Problem(err)
	}
	if bytes, ok := memory[vram]; ok {
		card["vram_bytes"] = bytes
	}
	// A card that can compute without a display also has a render node.
	nodes, err := discovery.ListDevices(h, dir+"/drm")
	r.Problem(err)
	for _, node := range nodes {
		if number, ok := strings.CutPrefix(node, "renderD"); ok && digits(number) {
			card["render"] = node
		}
	}
}

func digits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
