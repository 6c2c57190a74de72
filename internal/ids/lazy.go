package ids

import "sync"

// Lazy loads each list of names when the first of its IDs is looked up: most rules contain no IDs, and few those of USB, and names take
// time and memory. If a list cannot be loaded, all its IDs are unknown. It is safe for concurrent use.
type Lazy struct {
	// PCI and USB are files that replace the embedded names. Empty means the embedded names.
	PCI, USB string

	readPCI, readUSB sync.Once
	names            Names
}

func (l *Lazy) pci() *Names {
	l.readPCI.Do(func() { l.names.pci, _ = load(l.PCI, embeddedPCI) }) // an error leaves the list empty
	return &l.names
}

func (l *Lazy) usb() *Names {
	l.readUSB.Do(func() { l.names.usb, _ = load(l.USB, embeddedUSB) })
	return &l.names
}

// PCIVendor returns the name of a vendor.
func (l *Lazy) PCIVendor(vendor string) (string, bool) { return l.pci().PCIVendor(vendor) }

// PCIDevice returns the name of a device of a vendor.
func (l *Lazy) PCIDevice(vendor, device string) (string, bool) {
	return l.pci().PCIDevice(vendor, device)
}

// PCIClass returns the name of a class with its subclass, such as 0302.
func (l *Lazy) PCIClass(class string) (string, bool) { return l.pci().PCIClass(class) }

// USBVendor returns the name of a vendor.
func (l *Lazy) USBVendor(vendor string) (string, bool) { return l.usb().USBVendor(vendor) }

// USBDevice returns the name of a device of a vendor.
func (l *Lazy) USBDevice(vendor, device string) (string, bool) {
	return l.usb().USBDevice(vendor, device)
}
