package system

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// deviceTreeDir is the root of the device tree, see Documentation/ABI/testing/sysfs-firmware-ofw.
const deviceTreeDir = "sys/firmware/devicetree/base"

// maxCompatible is the maximum number of strings in compatible; boards have two to six.
const maxCompatible = 32

// compatibleForm is the form of a string in compatible: a manufacturer and a model, see the property in the Devicetree Specification.
var compatibleForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9,._+-]*$`)

// deviceTree describes the board of a machine that has a device tree: the model as an attribute, and each string of compatible, which
// names the board and what it is built of, as a flag. Most machines with DMI have no device tree; some with ACPI have one without a model.
func deviceTree(r *discovery.Result, h host.Host) {
	found, err := h.Exists(deviceTreeDir)
	if err == nil && !found {
		err = discovery.FirmwareHidden(h)
	}
	if err != nil {
		r.Problem(err)
		return
	}
	attributes := map[string]string{}
	errs := discovery.ReadOptional(h, deviceTreeDir, attributes, "model")
	const file = deviceTreeDir + "/compatible"
	data, err := h.ReadPrefix(file, host.MaxAttributeSize)
	var compatible []string
	if err == nil {
		if compatible, err = ParseCompatible(data); err != nil {
			err = fmt.Errorf("/%s: %w", file, err)
		}
	}
	if err = errors.Join(append(errs, host.Present(err))...); err != nil {
		r.Problem(err)
		return
	}
	r.Attributes(DeviceTreeFeature, attributes)
	if len(compatible) > 0 {
		r.Flags(DeviceTreeFeature, compatible)
	}
}

// ParseCompatible returns the strings of the property compatible, each of which ends with a zero byte.
func ParseCompatible(data []byte) ([]string, error) {
	list, whole := bytes.CutSuffix(data, []byte{0})
	parts := bytes.Split(list, []byte{0})
	if !whole || len(parts) > maxCompatible {
		return nil, fmt.Errorf("%.40q is not a list of at most %d strings that end with zero bytes", data, maxCompatible)
	}
	names := make([]string, len(parts))
	for i, part := range parts {
		if !compatibleForm.Match(part) {
			return nil, fmt.Errorf("%.40q is not a manufacturer and a model, such as raspberrypi,4-model-b", part)
		}
		names[i] = string(part)
	}
	return names, nil
}
