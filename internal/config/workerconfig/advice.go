package workerconfig

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/discovery/fake"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/discovery/pci"
	"github.com/assay-project/assay/discovery/usb"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
)

// The functions of this file return warnings about values that can match nothing, or "" for all others.

// Names are the names that have a meaning in a configuration.
type Names struct {
	Sources      []string `json:"sources"`
	Capabilities []string `json:"capabilities"`
	PCIFields    []string `json:"pciFields"`
	USBFields    []string `json:"usbFields"`
}

// KnownNames returns the names that have a meaning, for the notes of the chart.
func KnownNames() Names {
	return Names{Sources: sourceNames(), Capabilities: cpu.AllCapabilities(), PCIFields: pci.LabelFields(), USBFields: usb.LabelFields()}
}

// sourceNames returns the names of all sources.
func sourceNames() []string {
	names := []string{local.Name, fake.Name, custom.Name}
	for _, s := range builtin.Sources(builtin.DefaultConfig()) {
		names = append(names, s.Name())
	}
	slices.Sort(names)
	return names
}

// adviseSource checks an entry of featureSources or labelSources.
func adviseSource(entry string) string {
	name := strings.TrimPrefix(strings.TrimSpace(entry), "-")
	known := sourceNames()
	if name == "all" || slices.Contains(known, name) {
		return ""
	}
	text := fmt.Sprintf("unknown source %q", name)
	if near := yamltree.Nearest(name, known); near != "" {
		return text + "; did you mean " + near + "?"
	}
	return text + "; the sources are " + strings.Join(known, ", ")
}

// adviseClass checks an entry of deviceClassWhitelist, a class or a prefix of one with up to digits hexadecimal digits.
func adviseClass(bus string, digits int) func(string) string {
	return func(entry string) string {
		lower := strings.ToLower(entry)
		switch {
		case entry == "":
			return "an empty prefix selects devices of all classes"
		case strings.ContainsAny(entry, ", "):
			return fmt.Sprintf("no class of a %s device is %q: write an entry for each class: [%s]", bus, entry, quoted(strings.FieldsFunc(entry, separator)))
		case strings.HasPrefix(lower, "0x"):
			return fmt.Sprintf("no class of a %s device begins with %q: write %q", bus, entry, lower[2:])
		case strings.TrimRight(lower, "*") != lower && isHex(strings.TrimRight(lower, "*")):
			return fmt.Sprintf("no class of a %s device begins with %q: an entry is a prefix, write %q", bus, entry, strings.TrimRight(lower, "*"))
		case !isHex(lower):
			return fmt.Sprintf("no class of a %s device begins with %q: write up to %d hexadecimal digits, such as %q", bus, entry, digits, "0300"[:digits])
		case len(lower) > digits:
			return fmt.Sprintf("no class of a %s device begins with %q: a class has %d digits, write %q", bus, entry, digits, lower[:digits])
		}
		return ""
	}
}

// adviseLevel checks logLevel.
func adviseLevel(name string) string {
	var level slog.Level
	if name == "" || level.UnmarshalText([]byte(name)) == nil {
		return ""
	}
	return fmt.Sprintf("unknown level %q is ignored: use debug, info, warn or error", name)
}

func separator(r rune) bool { return r == ',' || r == ' ' }

func quoted(list []string) string {
	for i, s := range list {
		list[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(list, ", ")
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// adviseField checks a name in deviceLabelFields or deviceLabelForms.
func adviseField(bus string, known []string) func(string) string {
	return func(name string) string {
		if slices.Contains(known, name) {
			return ""
		}
		text := fmt.Sprintf("a %s device has no field %q", bus, name)
		if near := yamltree.Nearest(name, known); near != "" {
			return text + "; did you mean " + near + "?"
		}
		return text + "; the fields are " + strings.Join(known, ", ")
	}
}

// adviseOption checks an entry of configOpts.
func adviseOption(name string) string {
	bare, prefixed := strings.CutPrefix(name, "CONFIG_")
	bare, _, valued := strings.Cut(bare, "=")
	switch {
	case prefixed || valued:
		return fmt.Sprintf("no kernel option is named %q: options are written without CONFIG_ and without a value, write %s", name, bare)
	case name == "" || strings.ContainsAny(name, " ,*"):
		return fmt.Sprintf("no kernel option is named %q: write one entry for each option, such as PREEMPT_RT", name)
	}
	return ""
}

// adviseCapability checks an entry of attributeBlacklist or attributeWhitelist.
func adviseCapability(name string) string {
	if cpu.IsCapability(name) {
		return ""
	}
	text := fmt.Sprintf("no CPU capability is named %q", name)
	if strings.NewReplacer("_", "", ".", "").Replace(strings.ToUpper(name)) == "SSE41" {
		return text + "; did you mean SSE4?" // its name from before there was SSE4.2
	}
	for _, other := range []string{strings.ToUpper(name), strings.ToUpper(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))} {
		if cpu.IsCapability(other) {
			return text + "; did you mean " + other + "?"
		}
	}
	return text + "; assay features cpu.cpuid lists names"
}

// devices returns the keys of a source of devices.
func devices(bus string, digits int, fields []string, classes, labelFields *[]string, forms *[][]string) config.Keys {
	return config.Keys{
		"deviceClassWhitelist": config.Advised(config.Into(classes), adviseClass(bus, digits)),
		"deviceLabelFields":    config.Advised(config.Into(labelFields), adviseField(bus, fields)),
		"deviceLabelForms":     config.Advised(config.Into(forms), adviseField(bus, fields)),
	}
}

func (s *Settings) devices() (ofPCI, ofUSB config.Keys) {
	p, u := &s.Builtin.PCI, &s.Builtin.USB
	return devices("PCI", len("0300"), pci.LabelFields(), &p.DeviceClassWhitelist, &p.DeviceLabelFields, &p.DeviceLabelForms),
		devices("USB", len("ff"), usb.LabelFields(), &u.DeviceClassWhitelist, &u.DeviceLabelFields, &u.DeviceLabelForms)
}
