package watch

import (
	"bytes"
)

// subsystems maps a kernel subsystem to the source that reads its devices.
var subsystems = map[string]string{
	"pci":        "pci",
	"usb":        "usb",
	"net":        networkSource,
	"infiniband": "rdma",
	"drm":        "gpu",
	"accel":      "gpu",
	"block":      "storage",
	"nvme":       "storage",
	"module":     "kernel",
	"cpu":        "cpu",
	"memory":     "memory",
	"node":       "memory",
	"nd":         "memory",
	"dax":        "memory",
}

// deviceSources are the sources for which the kernel sends an event on every change. Others also depend on changes without events:
// the governor of a CPU, huge pages, the state of an InfiniBand port.
var deviceSources = []string{"gpu", "pci", "storage", "usb"}

// networkSource reads network links.
const networkSource = "network"

// ueventSource returns the source for a kernel uevent; empty if none. The message is "ACTION@DEVPATH", then "KEY=VALUE" fields,
// each terminated by NUL; see lib/kobject_uevent.c of the kernel.
func ueventSource(message []byte) string {
	head, rest, ok := bytes.Cut(message, []byte{0})
	if !ok || !bytes.ContainsRune(head, '@') {
		return "" // messages of udev begin with "libudev"
	}
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte{0})
		if name, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			return subsystems[string(name)]
		}
	}
	return ""
}
