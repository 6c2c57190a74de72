// Package gpu discovers graphics and compute devices that have a driver.
package gpu

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "gpu"

// DRMFeature lists the devices of the kernel's Direct Rendering Manager: GPUs with a driver. A GPU without a driver, or with one
// that does not use DRM, is only in pci.device.
const DRMFeature = "gpu.drm"

// classDir contains cards, their connectors and render nodes, see Documentation/gpu/drm-uapi.rst.
const classDir = "sys/class/drm"

// Source discovers GPUs.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "gpu".
func (Source) Name() string { return Name }

// Discover reads all cards, in the order of their names.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	entries, err := discovery.ListDevices(h, classDir)
	if err != nil {
		return r, err
	}
	cards := []map[string]string{}
	for _, entry := range entries {
		if number, ok := strings.CutPrefix(entry, "card"); ok && digits(number) {
			cards = append(cards, readCard(&r, h, entry))
		}
	}
	r.Instances(DRMFeature, cards)
	return r, nil
}

func readCard(r *discovery.Result, h host.Host, name string) map[string]string {
	card := map[string]string{"name": name}
	device := h.Resolve(classDir + "/" + name + "/device")
	if driver, err := h.ReadLink(device + "/driver"); err == nil {
		card["driver"] = host.Clean([]byte(path.Base(driver)))
	} else {
		r.Problem(host.Present(err))
	}
	raw := map[string]string{}
	// mem_info_vram_total is specific to amdgpu, see Documentation/gpu/amdgpu/driver-misc.rst.
	for _, err := range slices.Concat(
		discovery.ReadOptional(h, device, raw, "vendor", "device"),
		discovery.ReadNumbers(h, device, raw, "mem_info_vram_total"),
		discovery.NUMANode(h, device, card),
	) {
		r.Problem(err)
	}
	for _, id := range []string{"vendor", "device"} {
		v, ok := discovery.Hex(raw[id], 4)
		if ok {
			card[id] = v
		} else if _, read := raw[id]; read {
			r.Problem(discovery.NotA("PCI "+id, device+"/"+id, raw[id]))
		}
	}
	if bytes, ok := raw["mem_info_vram_total"]; ok {
		card["vram_bytes"] = bytes
	}
	// A card that can compute without a display also has a render node.
	nodes, err := discovery.ListDevices(h, device+"/drm")
	r.Problem(err)
	for _, node := range nodes {
		if number, ok := strings.CutPrefix(node, "renderD"); ok && digits(number) {
			card["render"] = node
		}
	}
	return card
}

func digits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}
