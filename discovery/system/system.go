// Package system discovers the operating system, the node's name and the identity of the hardware.
package system

import (
	"context"
	"errors"
	"io/fs"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "system"

// Features of the source.
const (
	OSReleaseFeature = "system.osrelease"
	NameFeature      = "system.name"
	DMIFeature       = "system.dmiid"
	TPMFeature       = "system.tpm"
	BootFeature      = "system.boot"
)

// labels are the elements of os-release that become labels.
var labels = []string{"ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor"}

// dmiFields are the fields that the kernel makes readable for all users (drivers/firmware/dmi-id.c); serial numbers and UUIDs are
// only readable for root and are omitted.
var dmiFields = []string{
	"bios_date", "bios_release", "bios_vendor", "bios_version",
	"board_asset_tag", "board_name", "board_vendor", "board_version",
	"chassis_asset_tag", "chassis_type", "chassis_vendor", "chassis_version",
	"ec_firmware_release",
	"product_family", "product_name", "product_sku", "product_version",
	"sys_vendor",
}

// Source discovers the system.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "system".
func (Source) Name() string { return Name }

// Discover reads the features of the system.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	osRelease(&r, h)
	if name := h.System.NodeName(); name != "" {
		r.Attributes(NameFeature, map[string]string{"nodename": name})
	}
	dmi := map[string]string{}
	for _, err := range discovery.ReadOptional(h, "sys/devices/virtual/dmi/id", dmi, dmiFields...) {
		r.Problem(err)
	}
	r.Attributes(DMIFeature, dmi)
	tpm(&r, h)
	boot(&r, h)
	return r, nil
}

// Glance reads what an upgrade can change. Firmware information is fixed until the next boot.
func (Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	osRelease(&r, h)
	r.Attributes(NameFeature, map[string]string{"nodename": h.System.NodeName()})
	return r, true
}

// tpm detects a trusted platform module, see Documentation/ABI/stable/sysfs-class-tpm. The first one is the one used for measured
// boot. The major version is available since Linux 5.6.
func tpm(r *discovery.Result, h host.Host) {
	const dir = "sys/class/tpm"
	names, err := discovery.ListDevices(h, dir)
	if err != nil {
		r.Problem(err)
		return
	}
	attributes := map[string]string{"present": strconv.FormatBool(len(names) > 0)}
	if len(names) > 0 {
		version, err := h.ReadAttribute(dir + "/" + names[0] + "/tpm_version_major")
		if err == nil {
			attributes["version"] = version
		} else if !host.Unanswered(err) {
			r.Problem(err)
		}
	}
	r.Attributes(TPMFeature, attributes)
}

// boot reads the ID that the kernel makes up when it boots, see random(4). The kubelet reports the same one on the Node, so that
// the controller can tell features of this boot from those of the last one.
func boot(r *discovery.Result, h host.Host) {
	id, err := h.ReadAttribute("proc/sys/kernel/random/boot_id")
	switch {
	case err == nil && id != "":
		r.Attributes(BootFeature, map[string]string{"id": id})
	case host.Present(err) != nil:
		r.Problem(err)
	}
}

// osRelease reads os-release(5): /etc/os-release, or the vendor's copy if that does not exist.
func osRelease(r *discovery.Result, h host.Host) {
	data, err := h.ReadFile("etc/os-release")
	if errors.Is(err, fs.ErrNotExist) {
		data, err = h.ReadFile("usr/lib/os-release")
	}
	if err != nil {
		r.Problem(host.Present(err))
		return
	}
	release := ParseOSRelease(data)
	r.Attributes(OSReleaseFeature, release)
	for _, key := range labels {
		if value, ok := release[key]; ok {
			r.Labels["system-os_release."+key] = value
		}
	}
}
