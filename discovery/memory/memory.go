// Package memory discovers memory: its size, NUMA nodes, non-volatile memory, swap and huge pages.
package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "memory"

// Features of the source.
const (
	TotalFeature                = "memory.total"
	NUMAFeature                 = "memory.numa"
	NodeFeature                 = "memory.node"
	NVFeature                   = "memory.nv"
	SwapFeature                 = "memory.swap"
	HugePagesFeature            = "memory.hugepages"
	TransparentHugePagesFeature = "memory.transparenthugepages"
)

// Source discovers memory.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "memory".
func (Source) Name() string { return Name }

// Discover reads the features of memory.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	total(&r, h)
	numa(&r, h)
	nonVolatile(&r, h)
	swap(&r, h)
	hugePages(&r, h)
	transparentHugePages(&r, h)
	return r, nil
}

// Glance reads what an administrator or a hypervisor can change. Huge pages of NUMA nodes are included in those of the machine.
func (Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	total(&r, h)
	swap(&r, h)
	hugePages(&r, h)
	transparentHugePages(&r, h)
	return r, true
}

// numa counts the NUMA nodes, see Documentation/ABI/stable/sysfs-devices-node. A kernel without NUMA has no such bus.
func numa(r *discovery.Result, h host.Host) {
	nodes, err := h.ReadDir("sys/bus/node/devices")
	if err != nil {
		r.Problem(host.Present(err))
		return
	}
	if len(nodes) == 0 {
		r.Problem(errors.New("/sys/bus/node/devices has no node: the memory must be in one"))
		return
	}
	isNUMA := len(nodes) > 1
	r.Attributes(NUMAFeature, map[string]string{
		"is_numa":    strconv.FormatBool(isNUMA),
		"node_count": strconv.Itoa(len(nodes)),
	})
	if isNUMA {
		r.Labels["memory-numa"] = "true"
	}
	numaNodes(r, h, nodes)
}

// nonVolatile lists the devices of libnvdimm, see Documentation/driver-api/nvdimm. The bus also has DIMMs and regions, which rules
// can distinguish by devtype.
func nonVolatile(r *discovery.Result, h host.Host) {
	names, err := discovery.ListDevices(h, "sys/bus/nd/devices")
	if err != nil {
		r.Problem(err)
		return
	}
	devices := make([]map[string]string, 0, len(names))
	for _, name := range names {
		device := map[string]string{"name": name}
		for _, err := range discovery.ReadOptional(h, "sys/bus/nd/devices/"+name, device, "devtype", "mode") {
			r.Problem(err)
		}
		devices = append(devices, device)
		r.Labels["memory-nv.present"] = "true"
		if device["devtype"] == "nd_dax" {
			r.Labels["memory-nv.dax"] = "true"
		}
	}
	r.Instances(NVFeature, devices)
}

// swap reports whether the host has swap space: /proc/swaps has a header line and one line per swap area, see proc(5). A kernel
// without swap has no such file.
func swap(r *discovery.Result, h host.Host) {
	const file = "proc/swaps"
	data, err := h.ReadText(file)
	if host.Present(err) != nil {
		r.Problem(err)
		return
	}
	if err == nil && (!bytes.HasPrefix(data, []byte("Filename")) || !bytes.HasSuffix(data, []byte("\n"))) {
		r.Problem(discovery.NotA("list of swap areas with the header Filename …", file, string(data)))
		return
	}
	enabled := bytes.Count(bytes.TrimSpace(data), []byte("\n")) > 0
	r.Attributes(SwapFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
	if enabled {
		// NFD's documentation names it "memory-swap.enabled", but this is the label that NFD writes and clusters select.
		r.Labels["memory-swap"] = "true"
	}
}

// hugePages reads the number of reserved pages of each size, see Documentation/ABI/testing/sysfs-kernel-mm-hugepages.
func hugePages(r *discovery.Result, h host.Host) {
	attributes := map[string]string{}
	enabled, err := readHugePages(r, h, "sys/kernel/mm/hugepages", attributes)
	if err != nil {
		r.Problem(host.Present(err))
		return
	}
	if enabled != "" {
		attributes["enabled"] = enabled
	}
	r.Attributes(HugePagesFeature, attributes)
}

// readHugePages adds the number of pages of each size in a directory, and reports whether there are any: "true", "false", or "" if the
// known sizes have none and that of another is unknown.
func readHugePages(r *discovery.Result, h host.Host, dir string, attributes map[string]string) (enabled string, err error) {
	sizes, err := h.ReadDir(dir)
	if err != nil {
		return "", err
	}
	enabled = "false"
	for _, size := range sizes {
		name, count, err := hugePagesOf(h, dir, size)
		if err != nil {
			r.Problem(err)
			if enabled == "false" {
				enabled = ""
			}
			continue
		}
		attributes[name] = strconv.FormatUint(count, 10)
		if count > 0 {
			enabled = "true"
		}
	}
	return enabled, nil
}

// hugePagesOf returns the name of the Kubernetes resource for the pages of one size, and their number.
func hugePagesOf(h host.Host, dir, size string) (name string, count uint64, err error) {
	if name, err = PageSizeName(size); err != nil {
		return "", 0, fmt.Errorf("/%s: %w", dir, err)
	}
	file := dir + "/" + size + "/nr_hugepages"
	text, err := h.ReadAttribute(file)
	if err != nil {
		return "", 0, err
	}
	if count, err = strconv.ParseUint(text, 10, 64); err != nil {
		return "", 0, discovery.NotA("number", file, text)
	}
	return name, count, nil
}

// transparentHugePages reads the setting for transparent huge pages, see Documentation/admin-guide/mm/transhuge.rst. A kernel
// without them has no such directory.
func transparentHugePages(r *discovery.Result, h host.Host) {
	attributes := map[string]string{}
	for name, file := range map[string]string{"mode": "enabled", "defrag": "defrag"} {
		file = "sys/kernel/mm/transparent_hugepage/" + file
		text, err := h.ReadAttribute(file)
		if err != nil {
			r.Problem(host.Present(err))
			continue
		}
		if attributes[name] = Chosen(text); attributes[name] == "" {
			delete(attributes, name)
			r.Problem(discovery.NotA("setting with the chosen word in brackets", file, text))
		}
	}
	if mode, ok := attributes["mode"]; ok {
		attributes["enabled"] = strconv.FormatBool(mode != "never")
		r.Attributes(TransparentHugePagesFeature, attributes)
	}
}

// Chosen returns the selected word, in brackets, of a setting that the kernel prints with its alternatives: "always [madvise]
// never".
func Chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !closed {
		return ""
	}
	return word
}

// PageSizeName converts the kernel's name of a huge page size to the name of the Kubernetes resource: hugepages-2048kB is
// hugepages-2Mi.
func PageSizeName(dir string) (string, error) {
	digits, prefixed := strings.CutPrefix(dir, "hugepages-")
	digits, suffixed := strings.CutSuffix(digits, "kB")
	size, err := strconv.ParseUint(digits, 10, 32)
	if !prefixed || !suffixed || err != nil || size == 0 {
		return "", fmt.Errorf("invalid directory of huge pages %q: expected for example hugepages-2048kB", dir)
	}
	unit := 0
	for ; size%1024 == 0 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	return "hugepages-" + strconv.FormatUint(size, 10) + units[unit], nil
}

// units are the binary suffixes of quantities from the kernel's kB upwards.
var units = []string{"Ki", "Mi", "Gi", "Ti"}
