package kernel

import (
	"fmt"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// cgroup tells the version of control groups at the usual place, see Documentation/admin-guide/cgroup-v2.rst: only the
// second has a file of controllers at its root. With both mounted, as older systems do, version 1 has the controllers.
func cgroup(r *discovery.Result, h host.Host) {
	const dir = "sys/fs/cgroup"
	unified, err := h.Exists(dir + "/cgroup.controllers")
	if err != nil {
		r.Problem(err)
		return
	}
	version := "2"
	if !unified {
		// A directory for each controller; without any, nobody mounted control groups.
		entries, err := discovery.ListDevices(h, dir)
		r.Problem(err)
		if len(entries) == 0 {
			return
		}
		version = "1"
	}
	r.Attributes(CgroupFeature, map[string]string{"version": version})
}

// iommu tells whether devices see memory through an IOMMU that the kernel drives, and how many groups of devices it can
// hand out apart, see Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-kernel-iommu_groups.
func iommu(r *discovery.Result, h host.Host) {
	units, err := discovery.ListDevices(h, "sys/class/iommu")
	if err != nil {
		r.Problem(err)
		return
	}
	groups, err := discovery.ListDevices(h, "sys/kernel/iommu_groups")
	r.Problem(err)
	r.Attributes(IOMMUFeature, map[string]string{
		"enabled":     strconv.FormatBool(len(units) > 0 || len(groups) > 0),
		"group_count": strconv.Itoa(len(groups)),
	})
}

// secureBootVariable is the variable SecureBoot of the namespace that the UEFI specification has for its own variables
// (3.3, globally defined variables).
const secureBootVariable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// secureBoot tells whether the firmware started only what it trusts. The file has four bytes of attributes before the
// value, see Documentation/filesystems/efivarfs.rst. A machine without UEFI has no such thing and gets "false"; on one with
// UEFI whose variables are not mounted nothing is said.
func secureBoot(r *discovery.Result, h host.Host) {
	efi, err := h.Exists("sys/firmware/efi")
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
		if err == nil && len(data) != 5 {
			r.Problem(fmt.Errorf("/%s has %d bytes, expected 5", secureBootVariable, len(data)))
			return
		}
		enabled = err == nil && data[4] == 1
	}
	r.Attributes(SecureBootFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
}
