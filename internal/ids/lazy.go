package ids

import "sync"

// Lazy loads names when the first ID is looked up: most rules contain no IDs, and the names take memory. If the names cannot be
// loaded, all IDs are unknown. It is safe for concurrent use.
type Lazy struct {
	// PCI and USB are files that replace the embedded names. Empty means the embedded names.
	PCI, USB string

	once  sync.Once
	names *Names
}

func (l *Lazy) get() *Names {
	l.once.Do(func() {
		var err error
		if l.names, err = Load(l.PCI, l.USB); err != nil {
			l.names = &Names{}
		}
	})
	return l.names
}

// PCIVendor returns the name of a vendor.
func (l *Lazy) PCIVendor(vendor string) (string, bool) { return l.get().PCIVendor(vendor) }

// PCIDevice returns the name of a device of a vendor.
func (l *Lazy) PCIDevice(vendor, device string) (string, bool) {
	return l.get().PCIDevice(vendor, device)
}

// PCIClass returns the name of a class with its subclass, such as 0302.
func (l *Lazy) PCIClass(class string) (string, bool) { return l.get().PCIClass(class) }

// USBVendor returns the name of a vendor.
func (l *Lazy) USBVendor(vendor string) (string, bool) { return l.get().USBVendor(vendor) }

// USBDevice returns the name of a device of a vendor.
func (l *Lazy) USBDevice(vendor, device string) (string, bool) {
	return l.get().USBDevice(vendor, device)
}
