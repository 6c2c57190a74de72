// Package system discovers the operating system, the node's name and the identity of the hardware.
package system

import (
	"context"
	"errors"
	"fmt"
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
	// DeviceTreeFeature is the board of a machine without DMI.
	DeviceTreeFeature = "system.devicetree"
)

// labels are the elements of os-release that become labels.
var labels = []string{"ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor"}

// dmiFields are the fields that the kernel makes readable for all users (drivers/firmware/dmi-id.c); serial numbers and UUIDs are
// only readable for root and are omitted.
var dmiFields = []string{
	"bios_date", "bios_release", "bios_vendor", "bios_version",
	"board_asset_tag", "board_name", "board_vendor", "board_version",
	"chassis_asset_tag", "chassis_vendor", "chassis_version",
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
	dmi(&r, h)
	deviceTree(&r, h)
	tpm(&r, h)
	return r, nil
}

// Glance reads what an upgrade can change. Firmware information is fixed until the next boot.
func (Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	osRelease(&r, h)
	r.Attributes(NameFeature, map[string]string{"nodename": h.System.NodeName()})
	return r, true
}

// dmi reads the strings of the firmware. A machine without SMBIOS, such as an ARM board, has none.
func dmi(r *discovery.Result, h host.Host) {
	const dir = "sys/devices/virtual/dmi/id"
	if _, err := h.Stat(dir); host.Present(err) != nil {
		r.Problem(err)
		return
	}
	attributes := map[string]string{}
	errs := append(discovery.ReadOptional(h, dir, attributes, dmiFields...),
		discovery.ReadNumbers(h, dir, attributes, "chassis_type")...)
	for _, err := range errs {
		r.Problem(err)
	}
	if len(attributes) > 0 || len(errs) == 0 {
		r.Attributes(DMIFeature, attributes)
	}
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
		const file = "tpm_version_major"
		version := map[string]string{}
		for _, err := range discovery.ReadNumbers(h, dir+"/"+names[0], version, file) {
			r.Problem(err)
		}
		if v, ok := version[file]; ok {
			attributes["version"] = v
		}
	}
	r.Attributes(TPMFeature, attributes)
}

// osRelease reads os-release(5): /etc/os-release, or the vendor's copy if that does not exist.
func osRelease(r *discovery.Result, h host.Host) {
	file := "etc/os-release"
	data, err := h.ReadText(file)
	if errors.Is(err, fs.ErrNotExist) {
		file = "usr/lib/os-release"
		data, err = h.ReadText(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("operating system: found neither /etc/os-release nor /usr/lib/os-release")
	}
	if err != nil {
		r.Problem(err)
		return
	}
	release := ParseOSRelease(data)
	if len(release) == 0 {
		r.Problem(fmt.Errorf("/%s sets no variable, such as ID=debian", file))
		return
	}
	r.Attributes(OSReleaseFeature, release)
	for _, key := range labels {
		// A variable may be set and empty. A label without a value would say that the node has such a system.
		if value := release[key]; value != "" {
			r.Labels["system-os_release."+key] = value
		}
	}
}
