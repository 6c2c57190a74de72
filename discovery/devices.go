package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

// Unknown is the value of a standard attribute that could not be read: rules can still match the other attributes of the device.
const Unknown = "unknown"

// DeviceConfig is the configuration of a source of devices, such as sources.pci.
type DeviceConfig struct {
	// DeviceClassWhitelist lists the classes, or prefixes of classes, of devices that become labels.
	DeviceClassWhitelist []string `json:"deviceClassWhitelist,omitempty"`
	// DeviceLabelFields lists the attributes in a label's name. Their order has no effect.
	DeviceLabelFields []string `json:"deviceLabelFields,omitempty"`
	// DeviceLabelForms lists further forms of labels, each a list like DeviceLabelFields, for clusters whose programs expect
	// different forms: "pci-10de.present" for [vendor] in addition to "pci-0302_10de.present".
	DeviceLabelForms [][]string `json:"deviceLabelForms,omitempty"`
}

// Forms returns the fields of each label form, and the configured fields that are invalid.
func (c DeviceConfig) Forms(allowed, defaults []string) (forms [][]string, unknown []string) {
	fields, unknown := labelFields(c.DeviceLabelFields, allowed)
	if len(fields) == 0 {
		fields = defaults
	}
	forms = append(forms, fields)
	for _, form := range c.DeviceLabelForms {
		fields, strange := labelFields(form, allowed)
		unknown = append(unknown, strange...)
		if len(fields) > 0 {
			forms = append(forms, fields)
		}
	}
	return forms, unknown
}

// labelFields returns the valid fields in their standard order, and the invalid ones.
func labelFields(list, allowed []string) (fields, unknown []string) {
	for _, f := range allowed {
		if slices.Contains(list, f) {
			fields = append(fields, f)
		}
	}
	for _, f := range list {
		if !slices.Contains(allowed, f) {
			unknown = append(unknown, f)
		}
	}
	return fields, unknown
}

// Wants reports whether devices of a class become labels.
func (c DeviceConfig) Wants(class string) bool {
	return slices.ContainsFunc(c.DeviceClassWhitelist, func(prefix string) bool {
		return strings.HasPrefix(class, strings.ToLower(prefix))
	})
}

// LabelStems joins a device's fields with "_", for each form. It omits a form with a missing or Unknown field, since that label
// would name a device that does not exist.
func LabelStems(device map[string]string, forms [][]string) []string {
	stems := make([]string, 0, len(forms))
	for _, fields := range forms {
		parts := make([]string, len(fields))
		for i, f := range fields {
			if device[f] == Unknown {
				continue
			}
			// A serial number is arbitrary text. With a slash, the device could choose the namespace of the label.
			parts[i] = strings.ReplaceAll(device[f], "/", "_")
		}
		if !slices.Contains(parts, "") {
			stems = append(stems, strings.Join(parts, "_"))
		}
	}
	return stems
}

// ReadOptional adds the attributes in the given files below dir, if they exist, and returns an error for each that exists and
// cannot be read. An attribute that the driver does not provide (EINVAL for the speed of a link that is down) counts as missing.
func ReadOptional(h host.Host, dir string, attributes map[string]string, names ...string) []error {
	var errs []error
	for _, name := range names {
		v, err := h.ReadAttribute(dir + "/" + name)
		switch {
		case err == nil:
			attributes[name] = v
		case !host.Unanswered(err):
			errs = append(errs, err)
		}
	}
	return errs
}

// ReadNumbers is ReadOptional for files that contain an integer. Other content is an error, and the attribute is missing: a rule
// that compares it would fail.
func ReadNumbers(h host.Host, dir string, attributes map[string]string, names ...string) []error {
	read := map[string]string{}
	errs := ReadOptional(h, dir, read, names...)
	for _, name := range names {
		v, ok := read[name]
		if !ok {
			continue
		}
		if _, err := strconv.ParseInt(v, 10, 64); err != nil {
			errs = append(errs, NotA("number", dir+"/"+name, v))
			continue
		}
		attributes[name] = v
	}
	return errs
}

// NUMANode adds the number of the NUMA node that a device is attached to, if the firmware reports one: it is -1 otherwise.
func NUMANode(h host.Host, dir string, attributes map[string]string) []error {
	const file = "numa_node"
	errs := ReadNumbers(h, dir, attributes, file)
	if attributes[file] == "-1" {
		delete(attributes, file)
	}
	return errs
}

// Hex returns a hexadecimal number without its prefix 0x in lower case, as lspci and lsusb print it, if it has the given number of
// digits.
func Hex(value string, digits int) (string, bool) {
	value = strings.ToLower(strings.TrimPrefix(value, "0x"))
	return value, len(value) == digits && strings.Trim(value, "0123456789abcdef") == ""
}

// NotA is the error of a file whose content is not of the expected kind, such as "number".
func NotA(kind, file, value string) error {
	return fmt.Errorf("/%s: invalid %s %.40q", file, kind, value)
}

// FirmwareHidden returns an error if the kernel's description of the firmware is hidden, as container runtimes do by default with an
// empty file system over /sys/firmware: the machine can have whatever is missing there.
func FirmwareHidden(h host.Host) error {
	const dir = "sys/firmware"
	entries, err := h.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		return errors.New("/" + dir + " is empty: a container runtime hides it; mount the host's /sys")
	}
	return host.Present(err)
}

// ListDevices returns the entries of a sysfs directory; none if the directory does not exist.
func ListDevices(h host.Host, dir string) ([]string, error) {
	names, err := h.ReadDir(dir)
	return names, host.Present(err)
}
