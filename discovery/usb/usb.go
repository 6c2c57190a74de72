// Package usb discovers USB devices.
package usb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "usb"

// DeviceFeature lists the USB devices.
const DeviceFeature = "usb.device"

// devicesDir contains devices and their interfaces, see Documentation/ABI/testing/sysfs-bus-usb and usb.rst.
const devicesDir = "sys/bus/usb/devices"

// perInterface is the class of a device whose interfaces have separate classes.
const perInterface = "00"

// fields are the valid fields of a label, in their order.
var fields = []string{"class", "vendor", "device", "serial"}

// LabelFields returns the valid fields of a label, in their order.
func LabelFields() []string { return slices.Clone(fields) }

// Config is sources.usb of the worker's configuration.
type Config struct {
	discovery.DeviceConfig `json:",inline"`
}

// DefaultConfig returns the default configuration: video (0e), miscellaneous (ef), application-specific (fe) and vendor-specific
// (ff) devices become labels with class, vendor and device.
func DefaultConfig() Config {
	return Config{discovery.DeviceConfig{
		DeviceClassWhitelist: []string{"0e", "ef", "fe", "ff"},
		DeviceLabelFields:    []string{"class", "vendor", "device"},
	}}
}

// Source discovers USB devices.
type Source struct {
	config  Config
	forms   [][]string
	unknown []string
}

// New returns the source.
func New(config Config) *Source {
	s := &Source{config: config}
	s.forms, s.unknown = config.Forms(fields, []string{"class", "vendor", "device"})
	return s
}

// Name returns "usb".
func (*Source) Name() string { return Name }

// Discover reads all USB devices, in the order of their ports. A device whose interfaces have separate classes becomes one instance
// per interface.
func (s *Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	if len(s.unknown) > 0 {
		r.Problem(fmt.Errorf("sources.usb.deviceLabelFields, deviceLabelForms: %q are not fields of a USB device; valid fields are %q", s.unknown, fields))
	}
	entries, err := discovery.ListDevices(h, devicesDir)
	if err != nil {
		return r, err
	}
	devices := []map[string]string{}
	for _, entry := range entries {
		if strings.Contains(entry, ":") {
			continue // an interface, such as 1-1:1.0, which is read with its device
		}
		for _, device := range s.read(&r, h, h.Resolve(devicesDir+"/"+entry), entry, entries) {
			devices = append(devices, device)
			s.label(&r, device)
		}
	}
	r.Instances(DeviceFeature, devices)
	return r, nil
}

func (s *Source) read(r *discovery.Result, h host.Host, dir, entry string, entries []string) []map[string]string {
	device := map[string]string{}
	for i, file := range []string{"bDeviceClass", "idVendor", "idProduct"} {
		device[fields[i]] = id(r, h, dir+"/"+file, []int{2, 4, 4}[i])
	}
	for _, err := range discovery.ReadOptional(h, dir, device, "serial") {
		r.Problem(err)
	}
	if device["class"] != perInterface {
		return []map[string]string{device}
	}
	var out []map[string]string
	// The entries are sorted, so the interfaces of a device are adjacent.
	first, _ := slices.BinarySearch(entries, entry+":")
	for _, e := range entries[first:] {
		if !strings.HasPrefix(e, entry+":") {
			break
		}
		instance := maps.Clone(device)
		instance["class"] = id(r, h, devicesDir+"/"+e+"/bInterfaceClass", 2)
		out = append(out, instance)
	}
	if len(out) == 0 {
		// The device is there, but not authorized or not configured: it has no interfaces, see Documentation/usb/authorization.rst.
		return []map[string]string{device}
	}
	return out
}

// id reads a hexadecimal number with the given number of digits.
func id(r *discovery.Result, h host.Host, file string, digits int) string {
	v, err := h.ReadAttribute(file)
	if err != nil {
		r.Problem(err)
		return discovery.Unknown
	}
	n, ok := discovery.Hex(v, digits)
	if !ok {
		r.Problem(discovery.NotA("USB id", file, v))
		return discovery.Unknown
	}
	return n
}

func (s *Source) label(r *discovery.Result, device map[string]string) {
	if !s.config.Wants(device["class"]) {
		return
	}
	for _, stem := range discovery.LabelStems(device, s.forms) {
		r.Labels["usb-"+stem+".present"] = "true"
	}
}
