// Package ids provides the names of PCI and USB IDs.
//
// The names come from the PCI ID Repository and the USB ID Repository, as packaged by Debian (pci.ids, usb.ids); see LICENSES for
// their notices. Use them only in messages: an unknown ID usually means that the device is newer than the list.
package ids

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
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
type Names struct{ pci, usb list }

// list is the content of one file.
type list struct {
	devices table // vendor<<16|device+1; for a vendor itself, vendor<<16
	classes table // PCI: class<<16|subclass+1
}

// table maps numbers to names. It consists of one string and two slices of numbers: the garbage collector would have to scan a map
// with 60,000 strings in each cycle.
type table struct {
	keys []uint32 // sorted
	ends []uint32 // end of the name of each key in text
	text string
}

// entry is one line of a file.
type entry struct {
	key  uint32
	name string
}

// newTable returns the table of entries in the order of a file, of which the last one counts for a number. The files are sorted, except for
// some tens of devices.
func newTable(entries []entry) table {
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	t := table{keys: make([]uint32, 0, len(entries)), ends: make([]uint32, 0, len(entries))}
	var text strings.Builder
	for i, e := range entries {
		if i+1 < len(entries) && entries[i+1].key == e.key {
			continue
		}
		text.WriteString(e.name)
		t.keys = append(t.keys, e.key)
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

// The lists that are embedded in the program. Each is parsed on first use.
var (
	embeddedPCI = sync.OnceValues(func() (list, error) { return unzip(pciGz) })
	embeddedUSB = sync.OnceValues(func() (list, error) { return unzip(usbGz) })
)

// Load returns the names in the given files. An empty path means the list that is embedded in the program.
func Load(pciFile, usbFile string) (*Names, error) {
	pci, err := load(pciFile, embeddedPCI)
	if err != nil {
		return nil, err
	}
	usb, err := load(usbFile, embeddedUSB)
	if err != nil {
		return nil, err
	}
	return &Names{pci: pci, usb: usb}, nil
}

// load returns the list in a file, or the embedded one if the path is empty.
func load(path string, embedded func() (list, error)) (list, error) {
	if path == "" {
		return embedded()
	}
	f, err := os.Open(path)
	if err != nil {
		return list{}, err
	}
	defer func() { _ = f.Close() }() // closing a file that was only read
	l, err := read(f)
	if err != nil {
		return list{}, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

func unzip(data []byte) (list, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return list{}, err
	}
	return read(z)
}

func read(r io.Reader) (list, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return list{}, err
	}
	return parse(string(data))
}

// PCIVendor returns the name of a vendor.
func (n *Names) PCIVendor(vendor string) (string, bool) { return lookup(&n.pci.devices, vendor, "") }

// PCIDevice returns the name of a device of a vendor.
func (n *Names) PCIDevice(vendor, device string) (string, bool) {
	return lookup(&n.pci.devices, vendor, device)
}

// PCIClass returns the name of a class with its subclass, such as 0302.
func (n *Names) PCIClass(class string) (string, bool) {
	if len(class) != 4 {
		return "", false
	}
	return lookup(&n.pci.classes, class[:2], class[2:])
}

// USBVendor returns the name of a vendor.
func (n *Names) USBVendor(vendor string) (string, bool) { return lookup(&n.usb.devices, vendor, "") }

// USBDevice returns the name of a device of a vendor.
func (n *Names) USBDevice(vendor, device string) (string, bool) {
	return lookup(&n.usb.devices, vendor, device)
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

// parse parses a list in the format of pci.ids and usb.ids. A line is "ID NAME"; devices are indented by one tab, subsystems and
// interfaces by two. Classes begin with "C "; lists that begin with other letters are skipped.
func parse(text string) (list, error) {
	devices, classes := make([]entry, 0, strings.Count(text, "\n")), []entry(nil)
	var into *[]entry
	var group uint32
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || line[0] == '#' || strings.HasPrefix(line, "\t\t") {
			continue
		}
		rest, indented := strings.CutPrefix(line, "\t")
		if !indented {
			into = &devices
			if class, ok := strings.CutPrefix(line, "C "); ok {
				into, rest = &classes, class
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
			*into = append(*into, entry{group, name})
		case v != 0xffff:
			*into = append(*into, entry{group | uint32(v) + 1, name})
		}
	}
	if len(devices) == 0 {
		return list{}, errors.New("contains no ids")
	}
	return list{devices: newTable(devices), classes: newTable(classes)}, nil
}
