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
	// DeviceLabelForms are further forms of labels, each a list like DeviceLabelFields, for clusters whose programs disagree
	// on the form: "pci-10de.present" of [vendor] beside "pci-0302_10de.present".
	DeviceLabelForms [][]string `json:"deviceLabelForms,omitempty"`
}

// Forms returns the fields of each form that a label takes, and the configured ones that are not allowed.
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

// labelFields returns the fields that are allowed ones, in the order of the allowed, and those that are not.
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

// LabelStems joins a device's fields with "_", for each form. A form with a field that is missing or Unknown is left out,
// for that label would name a device that does not exist.
func LabelStems(device map[string]string, forms [][]string) []string {
	stems := make([]string, 0, len(forms))
	for _, fields := range forms {
		parts := make([]string, len(fields))
		for i, f := range fields {
			if device[f] == Unknown {
				continue
			}
			// A serial number may be any text, with a slash as well: that would be a namespace of labels chosen by a stranger.
			parts[i] = strings.ReplaceAll(device[f], "/", "_")
		}
		if !slices.Contains(parts, "") {
			stems = append(stems, strings.Join(parts, "_"))
		}
	}
	return stems
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
