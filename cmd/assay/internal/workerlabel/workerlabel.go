// Package workerlabel finds out why the worker does not write one of its own labels, by the features that it publishes and its
// configuration.
package workerlabel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/kernel"
	"github.com/assay-project/assay/discovery/pci"
	"github.com/assay-project/assay/discovery/usb"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// Reason says why a label is missing.
type Reason struct {
	// Source is the source of the worker that writes labels of this form.
	Source string
	// Found says what the node has. Why is the setting or the reason that keeps the label out.
	Found, Why string
	// Fix is what to change in the worker's configuration; empty: no setting helps.
	Fix string
}

// asker has what an answer depends on.
type asker struct {
	settings *workerconfig.Settings
	facts    *facts.Facts
	mask     rules.Masking
}

// Explain returns why a label of the worker is missing on a node, by its name without the namespace. It returns nil if no source of the
// worker writes labels of this form.
func Explain(name string, settings *workerconfig.Settings, f *facts.Facts, mask rules.Masking) *Reason {
	a := &asker{settings, f, mask}
	prefix, rest, ok := strings.Cut(name, "-")
	sources := builtin.Sources(settings.Builtin)
	i := slices.IndexFunc(sources, func(s discovery.Source) bool { return s.Name() == prefix })
	if !ok || i < 0 {
		return nil
	}
	out := a.source(prefix, rest)
	out.Source = prefix
	if out.Why != "" {
		return out
	}
	// The node has it, and the settings of the source do not keep it out.
	if choice, _ := discovery.Choose(settings.LabelSources, sources); !choice.Has(sources[i]) {
		out.Why = fmt.Sprintf("core.labelSources is %s, which leaves out the source %s", list(settings.LabelSources), prefix)
		out.Fix = fmt.Sprintf("add %s to core.labelSources", prefix)
	} else if pattern := settings.LabelWhiteList; pattern != nil && !pattern.MatchString(name) {
		out.Why = fmt.Sprintf("core.labelWhiteList is %q, which does not match %s", pattern, name)
		out.Fix = fmt.Sprintf("let core.labelWhiteList match %s too", name)
	}
	return out
}

// source returns why the settings of a source, or the node, keep out the label with the rest of a name.
func (a *asker) source(source, rest string) *Reason {
	switch {
	case source == pci.Name:
		return a.device("PCI device", source, pci.DeviceFeature, rest, pci.LabelFields(), a.settings.Builtin.PCI.DeviceConfig, pci.DefaultConfig().DeviceLabelFields)
	case source == usb.Name:
		return a.device("USB device", source, usb.DeviceFeature, rest, usb.LabelFields(), a.settings.Builtin.USB.DeviceConfig, usb.DefaultConfig().DeviceLabelFields)
	case source == cpu.Name && strings.HasPrefix(rest, "cpuid."):
		return a.flag(strings.TrimPrefix(rest, "cpuid."))
	case source == kernel.Name && strings.HasPrefix(rest, "config."):
		return a.option(strings.TrimPrefix(rest, "config."))
	}
	var names []string
	for _, name := range a.facts.Names() {
		if strings.HasPrefix(name, source+".") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return a.nothing(source + ".*")
	}
	return &Reason{
		Found: fmt.Sprintf("the node has %s", strings.Join(names, ", ")),
		Why:   "the source writes this label only if the node has what it names; assay features lists what the node has",
	}
}

// nothing is the reason if the node does not have a feature.
func (a *asker) nothing(feature string) *Reason {
	return &Reason{
		Found: "the node has no feature " + feature,
		Why:   "the worker has not published it: see its log, core.featureSources and core.noPublishFeatures",
	}
}

func (a *asker) flag(name string) *Reason {
	f := a.facts.Feature(cpu.CPUIDFeature)
	if f == nil || f.Flags == nil {
		return a.nothing(cpu.CPUIDFeature)
	}
	if !f.Flags.Has(name) {
		return &Reason{Found: fmt.Sprintf("%s does not have %s", cpu.CPUIDFeature, name), Why: "the processor does not have it, or the kernel or hypervisor hides it"}
	}
	out := &Reason{Found: fmt.Sprintf("%s has %s", cpu.CPUIDFeature, name)}
	switch c := a.settings.Builtin.CPU.CPUID; {
	case len(c.AttributeWhitelist) > 0 && !slices.Contains(c.AttributeWhitelist, name):
		out.Why, out.Fix = "sources.cpu.cpuid.attributeWhitelist does not list "+name, "add "+name+" to sources.cpu.cpuid.attributeWhitelist"
	case len(c.AttributeWhitelist) == 0 && slices.Contains(c.AttributeBlacklist, name):
		out.Why = "sources.cpu.cpuid.attributeBlacklist lists " + name
		out.Fix = "set sources.cpu.cpuid.attributeBlacklist without " + name
	case strings.Contains(name, "+"):
		out.Why = "a label cannot have this name"
	}
	return out
}

func (a *asker) option(name string) *Reason {
	f := a.facts.Feature(kernel.ConfigFeature)
	if f == nil || f.Attributes == nil {
		return a.nothing(kernel.ConfigFeature)
	}
	value, ok := f.Attributes.Get(name)
	if !ok {
		return &Reason{Found: fmt.Sprintf("%s does not have %s", kernel.ConfigFeature, name), Why: "the kernel was built without this option"}
	}
	if a.mask.Hides(name) {
		value = rules.Hidden
	}
	out := &Reason{Found: fmt.Sprintf("%s has %s=%s", kernel.ConfigFeature, name, value)}
	if !slices.Contains(a.settings.Builtin.Kernel.ConfigOpts, name) {
		out.Why = fmt.Sprintf("sources.kernel.configOpts is %s, without it", list(a.settings.Builtin.Kernel.ConfigOpts))
		out.Fix = "add " + name + " to sources.kernel.configOpts"
	}
	return out
}

// device explains the label of a device, such as 0302_10de.present.
func (a *asker) device(noun, source, feature, rest string, fields []string, c discovery.DeviceConfig, defaults []string) *Reason {
	f := a.facts.Feature(feature)
	if f == nil || f.Instances == nil {
		return a.nothing(feature)
	}
	stem, sriov := strings.CutSuffix(rest, ".sriov.capable")
	if !sriov {
		stem = strings.TrimSuffix(rest, ".present")
	}
	forms, _ := c.Forms(fields, defaults)
	setting := "sources." + source + "."
	var best *Reason
	rank := 0 // of best
	for i := range f.Instances.Len() {
		device := f.Instances.Instance(i)
		form := formOf(stem, device, fields)
		if form == nil {
			continue
		}
		r, n := &Reason{Found: fmt.Sprintf("%s has %s", feature, describe(device, fields, a.mask))}, 1
		known := slices.ContainsFunc(forms, func(have []string) bool { return slices.Equal(have, form) })
		_, capable := device["sriov_totalvfs"]
		var why, fix []string
		if !c.Wants(device["class"]) {
			why = append(why, fmt.Sprintf("%sdeviceClassWhitelist is %s, which leaves out class %s", setting, list(c.DeviceClassWhitelist), device["class"]))
			fix = append(fix, fmt.Sprintf("add %q to %sdeviceClassWhitelist", device["class"], setting))
		}
		if !known {
			why = append(why, fmt.Sprintf("%sdeviceLabelFields is %s, so that its label is %s", setting, list(forms[0]), source+"-"+strings.Join(discovery.LabelStems(device, forms[:1]), "")+".present"))
			fix = append(fix, fmt.Sprintf("add [%s] to %sdeviceLabelForms", strings.Join(form, ", "), setting))
		}
		if sriov && !capable {
			why, fix = append(why, "the device does not support SR-IOV: it has no attribute sriov_totalvfs"), nil
		}
		r.Why, r.Fix = strings.Join(why, "; "), strings.Join(fix, ", and ")
		if n += 3 - len(why); n > rank {
			best, rank = r, n
		}
	}
	if best != nil {
		return best
	}
	return &Reason{
		Found: fmt.Sprintf("%s has %d devices, and no %s has %s", feature, f.Instances.Len(), noun, strings.ReplaceAll(stem, "_", ", ")),
		Why:   "the node does not have such a device",
	}
}

// formOf returns the fields of a device whose values are a stem; nil: there are none.
func formOf(stem string, device map[string]string, fields []string) []string {
	for set := 1; set < 1<<len(fields); set++ {
		var form []string
		for i, name := range fields {
			if set&(1<<i) != 0 {
				form = append(form, name)
			}
		}
		if stems := discovery.LabelStems(device, [][]string{form}); len(stems) == 1 && stems[0] == stem {
			return form
		}
	}
	return nil
}

func describe(device map[string]string, fields []string, mask rules.Masking) string {
	var parts []string
	for _, name := range fields {
		if value := device[name]; value != "" {
			if mask.Hides(name) {
				value = rules.Hidden
			}
			parts = append(parts, name+" "+value)
		}
	}
	return "a device with " + strings.Join(parts, ", ")
}

// list formats a list as YAML.
func list(of []string) string {
	quoted := make([]string, len(of))
	for i, s := range of {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
