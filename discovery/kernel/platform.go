package kernel

import (
	"fmt"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// cgroup returns the version of control groups at the standard mount point, see Documentation/admin-guide/cgroup-v2.rst: only
// version 2 has a file cgroup.controllers at its root. If both are mounted, as on older systems, version 1 has the controllers.
func cgroup(r *discovery.Result, h host.Host) {
	const dir = "sys/fs/cgroup"
	unified, err := h.Exists(dir + "/cgroup.controllers")
	if err != nil {
		r.Problem(err)
		return
	}
	version := "2"
	if !unified {
		// Version 1 has a directory for each controller; without any, control groups are not mounted.
		entries, err := discovery.ListDevices(h, dir)
		if err != nil || len(entries) == 0 {
			r.Problem(err)
			return
		}
		version = "1"
	}
	r.Attributes(CgroupFeature, map[string]string{"version": version})
}

// iommu reports whether the kernel uses an IOMMU for devices, and the number of device groups that it can assign separately, see
// Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-kernel-iommu_groups.
func iommu(r *discovery.Result, h host.Host) {
	units, err := discovery.ListDevices(h, "sys/class/iommu")
	if err != nil {
		r.Problem(err)
		return
	}
	groups, err := discovery.ListDevices(h, "sys/kernel/iommu_groups")
	if err != nil {
		r.Problem(err)
		return
	}
	r.Attributes(IOMMUFeature, map[string]string{
		"enabled":     strconv.FormatBool(len(units) > 0 || len(groups) > 0),
		"group_count": strconv.Itoa(len(groups)),
	})
}

// secureBootVariable is the variable SecureBoot in the namespace for variables of the UEFI specification (3.3, globally defined
// variables).
const secureBootVariable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// secureBoot reports whether Secure Boot is enabled. The file has four bytes of attributes before the value, see
// Documentation/filesystems/efivarfs.rst. The result is "false" for a machine without UEFI, and absent if the variables of a UEFI
// machine are not mounted.
func secureBoot(r *discovery.Result, h host.Host) {
	efi, err := h.Exists("sys/firmware/efi")
	if err == nil && !efi {
		err = discovery.FirmwareHidden(h)
	}
	if err != nil {
		r.Problem(err)
		return
	}
	enabled := false
	if efi {
		if mounted, err := discovery.ListDevices(h, "sys/firmware/efi/efivars"); err != nil || len(mounted) == 0 {
			r.Problem(err)
			return
		}
		data, err := h.ReadPrefix(secureBootVariable, 16)
		if host.Present(err) != nil {
			r.Problem(err)
			return
		}
		if err == nil && (len(data) != 5 || data[4] > 1) {
			r.Problem(fmt.Errorf("/%s: % x are not 4 bytes of attributes and 0 or 1", secureBootVariable, data))
			return
		}
		enabled = err == nil && data[4] == 1
	}
	r.Attributes(SecureBootFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
}
