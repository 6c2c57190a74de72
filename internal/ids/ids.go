// Package ids provides the names of PCI and USB IDs.
//
// The names come from the PCI ID Repository and the USB ID Repository, as packaged by Debian (pci.ids, usb.ids); see LICENSES for
// their notices. Use them only in messages: an unknown ID usually means that the device is newer than the list.
package ids

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./gen

//go:embed pci.ids.gz
var pciGz []byte

//go:embed usb.ids.gz
var usbGz []byte

// maxFile is the maximum size of a file in bytes. The complete lists have less than 2 MB.
const maxFile = 16 << 20

// Names maps IDs to names. IDs are lower-case hexadecimal numbers with four digits, as in sysfs. It is immutable and safe for
// concurrent use.
type Names struct {
	pci, usb table // vendor<<16|device+1; for a vendor itself, vendor<<16
	classes  table // PCI: class<<16|subclass+1
}

// table maps numbers to names. It consists of one string and two slices of numbers: the garbage collector would have to scan a map
// with 60,000 strings in each cycle.
type table struct {
	keys []uint32 // sorted
	ends []uint32 // end of the name of each key in text
	text string
}

func newTable(names map[uint32]string) table {
	t := table{keys: slices.Sorted(maps.Keys(names)), ends: make([]uint32, 0, len(names))}
	var text strings.Builder
	for _, key := range t.keys {
		text.WriteString(names[key])
		t.ends = append(t.ends, uint32(text.Len())) //nolint:gosec // bounded by maxFile
	}
	t.text = text.String()
	return t
}

func (t *table) name(key uint32) (string, bool) {
	i, ok := slices.BinarySearch(t.keys, key)
	if !ok {
		return "", false
	}
	start := uint32(0)
	if i > 0 {
		start = t.ends[i-1]
	}
	return t.text[start:t.ends[i]], true
}

// Embedded returns the names that are embedded in the program. They are parsed on first use.
var Embedded = sync.OnceValues(func() (*Names, error) {
	pci, err := unzip(pciGz)
	if err != nil {
		return nil, err
	}
	usb, err := unzip(usbGz)
	if err != nil {
		return nil, err
	}
	return Parse(bytes.NewReader(pci), bytes.NewReader(usb))
})

// Load returns the embedded names, replaced by the names in the given files. Either path may be empty.
func Load(pciFile, usbFile string) (*Names, error) {
	base, err := Embedded()
	if err != nil {
		return nil, err
	}
	n := *base
	if pciFile != "" {
		if n.pci, n.classes, err = parseFile(pciFile); err != nil {
			return nil, err
		}
	}
	if usbFile != "" {
		if n.usb, _, err = parseFile(usbFile); err != nil {
			return nil, err
		}
	}
	return &n, nil
}

// Parse parses lists in the format of pci.ids and usb.ids. It skips everything except for vendors, devices and classes.
func Parse(pci, usb io.Reader) (*Names, error) {
	n := &Names{}
	var err error
	if n.pci, n.classes, err = parse(pci); err != nil {
		return nil, fmt.Errorf("pci.ids: %w", err)
	}
	if n.usb, _, err = parse(usb); err != nil {
		return nil, fmt.Errorf("usb.ids: %w", err)
	}
	return n, nil
}

// PCIVendor returns the name of a vendor.
func (n *Names) PCIVendor(vendor string) (string, bool) { return lookup(&n.pci, vendor, "") }

// PCIDevice returns the name of a device of a vendor.
func (n *Names) PCIDevice(vendor, device string) (string, bool) {
	return lookup(&n.pci, vendor, device)
}

// PCIClass returns the name of a class with its subclass, such as 0302.
func (n *Names) PCIClass(class string) (string, bool) {
	if len(class) != 4 {
		return "", false
	}
	return lookup(&n.classes, class[:2], class[2:])
}

// USBVendor returns the name of a vendor.
func (n *Names) USBVendor(vendor string) (string, bool) { return lookup(&n.usb, vendor, "") }

// USBDevice returns the name of a device of a vendor.
func (n *Names) USBDevice(vendor, device string) (string, bool) {
	return lookup(&n.usb, vendor, device)
}

func lookup(t *table, first, second string) (string, bool) {
	a, err := strconv.ParseUint(first, 16, 16)
	if err != nil {
		return "", false
	}
	key := uint32(a) << 16
	if second != "" {
		b, err := strconv.ParseUint(second, 16, 16)
		if err != nil || b == 0xffff {
			return "", false
		}
		key |= uint32(b) + 1
	}
	return t.name(key)
}

func parseFile(path string) (devices, classes table, err error) {
	f, err := os.Open(path)
	if err != nil {
		return table{}, table{}, err
	}
	defer func() { _ = f.Close() }() // closing a file that was only read
	devices, classes, err = parse(io.LimitReader(f, maxFile))
	if err != nil {
		return table{}, table{}, fmt.Errorf("%s: %w", path, err)
	}
	return devices, classes, nil
}

// parse parses one list, and returns its devices and its classes. A line is "ID NAME"; devices are indented by one tab, subsystems
// and interfaces by two. Classes begin with "C "; lists that begin with other letters are skipped.
func parse(r io.Reader) (table, table, error) {
	devices, classes := map[uint32]string{}, map[uint32]string{}
	var into map[uint32]string
	var group uint32
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || line[0] == '#' || strings.HasPrefix(line, "\t\t") {
			continue
		}
		rest, indented := strings.CutPrefix(line, "\t")
		if !indented {
			into = devices
			if class, ok := strings.CutPrefix(line, "C "); ok {
				into, rest = classes, class
			}
		}
		id, name, ok := strings.Cut(rest, "  ")
		v, err := strconv.ParseUint(id, 16, 16)
		if !ok || err != nil {
			if !indented {
				into = nil // a list of another type
			}
			continue
		}
		switch {
		case into == nil:
		case !indented:
			group = uint32(v) << 16
			into[group] = name
		case v != 0xffff:
			into[group|uint32(v)+1] = name
		}
	}
	if err := lines.Err(); err != nil {
		return table{}, table{}, err
	}
	if len(devices) == 0 {
		return table{}, table{}, fmt.Errorf("contains no ids")
	}
	return newTable(devices), newTable(classes), nil
}

func unzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxFile))
}
