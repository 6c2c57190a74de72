package watch

import (
	"bytes"
)

// subsystems says which source reads the devices of a kernel subsystem.
var subsystems = map[string]string{
	"pci":        "pci",
	"usb":        "usb",
	"net":        networkSource,
	"infiniband": "rdma",
	"drm":        "gpu",
	"block":      "storage",
	"nvme":       "storage",
	"module":     "kernel",
	"cpu":        "cpu",
	"memory":     "memory",
	"node":       "memory",
	"nd":         "memory",
	"dax":        "memory",
}

// deviceSources are those of which the kernel announces every change. Others change in ways that it does not announce: the
// governor of a CPU, huge pages, the state of an InfiniBand port.
var deviceSources = []string{"gpu", "pci", "storage", "usb"}

// networkSource reads network links.
const networkSource = "network"

// ueventSource returns the source that a uevent of the kernel concerns; empty if none. The message is
// "ACTION@DEVPATH", then "KEY=VALUE" fields, each ended by a NUL; see lib/kobject_uevent.c of the kernel.
func ueventSource(message []byte) string {
	head, rest, ok := bytes.Cut(message, []byte{0})
	if !ok || !bytes.ContainsRune(head, '@') {
		return "" // udev's own messages begin with "libudev"
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
