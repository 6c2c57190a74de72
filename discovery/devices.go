package discovery

import (
	"slices"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

// Unknown is the value of an attribute that every device of a kind has but that could not be read: the device stays
// visible to rules that ask about its other attributes.
const Unknown = "unknown"

// DeviceConfig is the configuration of a source of devices, such as sources.pci.
type DeviceConfig struct {
	// DeviceClassWhitelist are the classes, or prefixes of classes, whose devices become labels.
	DeviceClassWhitelist []string `json:"deviceClassWhitelist,omitempty"`
	// DeviceLabelFields are the attributes that a label's name is made of. Their order does not matter.
	DeviceLabelFields []string `json:"deviceLabelFields,omitempty"`
}

// LabelFields returns the configured fields that are allowed ones, in the order of the allowed, and those that are not;
// the given defaults if none remains.
func (c DeviceConfig) LabelFields(allowed, defaults []string) (fields, unknown []string) {
	for _, f := range allowed {
		if slices.Contains(c.DeviceLabelFields, f) {
			fields = append(fields, f)
		}
	}
	for _, f := range c.DeviceLabelFields {
		if !slices.Contains(allowed, f) {
			unknown = append(unknown, f)
		}
	}
	if len(fields) == 0 {
		fields = defaults
	}
	return fields, unknown
}

// Wants reports whether devices of a class become labels.
func (c DeviceConfig) Wants(class string) bool {
	return slices.ContainsFunc(c.DeviceClassWhitelist, func(prefix string) bool {
		return strings.HasPrefix(class, strings.ToLower(prefix))
	})
}

// LabelStem joins a device's fields with "_". It is not ok if one of them is missing or Unknown, for then the label would
// name a device that does not exist.
func LabelStem(device map[string]string, fields []string) (stem string, ok bool) {
	parts := make([]string, len(fields))
	for i, f := range fields {
		v := device[f]
		if v == "" || v == Unknown {
			return "", false
		}
		// A serial number may be any text, with a slash as well: that would be a namespace of labels chosen by a stranger.
		parts[i] = strings.ReplaceAll(v, "/", "_")
	}
	return strings.Join(parts, "_"), true
}

// ReadOptional adds those of the files below dir that the host has to attributes, under their names there, and returns an
// error for each that is there and cannot be read. An attribute that the driver does not answer for (the speed of a link
// that is down is EINVAL) counts as not there.
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

// ListDevices returns the entries of a directory of sysfs; none if the host does not have it.
func ListDevices(h host.Host, dir string) ([]string, error) {
	names, err := h.ReadDir(dir)
	return names, host.Present(err)
}
