// Package pci discovers PCI devices.
package pci

import (
	"context"
	"fmt"
	"slices"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "pci"

// DeviceFeature lists the PCI devices.
const DeviceFeature = "pci.device"

// devicesDir contains all PCI devices, see Documentation/ABI/testing/sysfs-bus-pci.
const devicesDir = "sys/bus/pci/devices"

// fields are the attributes that every PCI device has in its configuration space, in their order in a label.
var fields = []string{"class", "vendor", "device", "subsystem_vendor", "subsystem_device"}

// LabelFields returns the valid fields of a label, in their order.
func LabelFields() []string { return slices.Clone(fields) }

// Config is sources.pci of the worker's configuration.
type Config struct {
	discovery.DeviceConfig `json:",inline"`
}

// DefaultConfig returns the default configuration: displays and 3D controllers (03), co-processors (0b40) and processing
// accelerators (12) become labels with class and vendor.
func DefaultConfig() Config {
	return Config{discovery.DeviceConfig{
		DeviceClassWhitelist: []string{"03", "0b40", "12"},
		DeviceLabelFields:    []string{"class", "vendor"},
	}}
}

// Source discovers PCI devices.
type Source struct {
	config  Config
	forms   [][]string
	unknown []string
}

// New returns the source.
func New(config Config) *Source {
	s := &Source{config: config}
	s.forms, s.unknown = config.Forms(fields, []string{"class", "vendor"})
	return s
}

// Name returns "pci".
func (*Source) Name() string { return Name }

// Discover reads all PCI devices, in the order of their addresses.
func (s *Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	if len(s.unknown) > 0 {
		r.Problem(fmt.Errorf("sources.pci.deviceLabelFields, deviceLabelForms: %q are not fields of a PCI device; valid fields are %q", s.unknown, fields))
	}
	addresses, err := discovery.ListDevices(h, devicesDir)
	if err != nil {
		return r, err
	}
	devices := make([]map[string]string, 0, len(addresses))
	for _, address := range addresses {
		device := s.read(&r, h, devicesDir+"/"+address)
		devices = append(devices, device)
		s.label(&r, device)
	}
	r.Instances(DeviceFeature, devices)
	return r, nil
}

func (s *Source) read(r *discovery.Result, h host.Host, dir string) map[string]string {
	// Resolve the link from the bus to the device in the tree once for all attributes.
	dir = h.Resolve(dir)
	device := make(map[string]string, len(fields)+1)
	for _, f := range fields {
		device[f] = discovery.Unknown
		v, err := h.ReadAttribute(dir + "/" + f)
		if err != nil {
			r.Problem(err)
			continue
		}
		if id, ok := hex(f, v); ok {
			device[f] = id
		} else {
			r.Problem(discovery.NotA("PCI "+f, dir+"/"+f, v))
		}
	}
	for _, err := range slices.Concat(
		discovery.ReadNumbers(h, dir, device, "sriov_totalvfs"),
		discovery.ReadOptional(h, dir, device, "iommu_group/type", "iommu/intel-iommu/version"),
	) {
		r.Problem(err)
	}
	return device
}

// hex returns a number in the configuration space as lspci prints it. For the class it omits the programming interface, which
// leaves the four digits of class and subclass.
func hex(field, value string) (string, bool) {
	if field == "class" {
		class, ok := discovery.Hex(value, len("030200"))
		if !ok {
			return "", false
		}
		return class[:4], true
	}
	return discovery.Hex(value, 4)
}

func (s *Source) label(r *discovery.Result, device map[string]string) {
	if !s.config.Wants(device["class"]) {
		return
	}
	_, sriov := device["sriov_totalvfs"]
	for _, stem := range discovery.LabelStems(device, s.forms) {
		r.Labels["pci-"+stem+".present"] = "true"
		if sriov {
			r.Labels["pci-"+stem+".sriov.capable"] = "true"
		}
	}
}
