package lint

import (
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/assay-project/assay/rules/suggest"
)

// knownFeature describes a feature that Assay's sources publish.
type knownFeature struct {
	flags, attributes, instances bool
	// elements are the names of flags, attributes, or attributes of instances.
	elements []string
	// prefixes are prefixes of other element names.
	prefixes []string
	// valued lists the attributes of a feature that also has flags.
	valued []string
	// open is set if there are other element names as well, such as the options of a kernel.
	open bool
}

// catalog holds the features of Assay's sources. A test compares it with what the sources publish.
var catalog = map[string]knownFeature{
	"cdi.kind": {instances: true, elements: []string{"class", "kind", "vendor"}},

	"cpu.cpuid": {flags: true, attributes: true, open: true, elements: cpuFlags, valued: []string{"AVX10_VERSION"}},
	"cpu.model": {attributes: true, elements: []string{"architecture", "family", "hypervisor", "id", "microcode", "name", "stepping", "vendor_id"}},
	"cpu.cache": {attributes: true, open: true, elements: []string{"l1d.bytes", "l1i.bytes", "l2.bytes", "l2.count",
		"l2d.bytes", "l2i.bytes", "l3.bytes", "l3.count"}},
	"cpu.cstate": {attributes: true, elements: []string{"enabled"}},
	"cpu.pstate": {attributes: true, elements: []string{"scaling", "scaling_governor", "status", "turbo"}},
	"cpu.rdt": {flags: true, attributes: true, elements: []string{"RDTCMT", "RDTL2CA", "RDTL3CA", "RDTL3CA_NUM_CLOSID", "RDTMBA", "RDTMBM", "RDTMON"},
		valued: []string{"RDTCMT", "RDTL2CA", "RDTL3CA", "RDTL3CA_NUM_CLOSID", "RDTMBA", "RDTMBM", "RDTMON"}},
	"cpu.security": {attributes: true, elements: []string{"se.enabled", "sev.asids", "sev.enabled", "sev.encrypted_state_ids",
		"sev.es.enabled", "sev.snp.enabled", "sgx.enabled", "sgx.epc", "tdx.enabled", "tdx.protected", "tdx.total_keys"}},
	"cpu.sgx":         {attributes: true, elements: []string{"enabled"}},
	"cpu.se":          {attributes: true, elements: []string{"enabled"}},
	"cpu.sst":         {attributes: true, elements: []string{"bf.enabled"}},
	"cpu.topology":    {attributes: true, open: true, elements: []string{"core_count", "cpu_count", "hardware_multithreading", "socket_count"}},
	"cpu.coprocessor": {attributes: true, elements: []string{"nx_gzip"}},

	"kernel.config":        {attributes: true, open: true},
	"kernel.loadedmodule":  {flags: true, open: true},
	"kernel.enabledmodule": {flags: true, open: true},
	"kernel.module":        {instances: true, elements: []string{"name", "version"}},
	"kernel.selinux":       {attributes: true, elements: []string{"enabled"}},
	"kernel.kvm":           {attributes: true, elements: []string{"enabled"}},
	"kernel.cgroup":        {attributes: true, elements: []string{"version"}},
	"kernel.iommu":         {attributes: true, elements: []string{"enabled", "group_count"}},
	"kernel.secureboot":    {attributes: true, elements: []string{"enabled"}},
	"kernel.version":       {attributes: true, elements: []string{"full", "major", "minor", "revision"}},

	"memory.total":                {attributes: true, elements: []string{"bytes", "mib"}},
	"memory.node":                 {instances: true, elements: []string{"bytes", "cpus", "id", "mib"}, prefixes: []string{"hugepages-"}},
	"memory.numa":                 {attributes: true, elements: []string{"is_numa", "node_count"}},
	"memory.nv":                   {instances: true, elements: []string{"devtype", "mode", "name"}},
	"memory.swap":                 {attributes: true, elements: []string{"enabled"}},
	"memory.hugepages":            {attributes: true, elements: []string{"enabled"}, prefixes: []string{"hugepages-"}},
	"memory.transparenthugepages": {attributes: true, elements: []string{"defrag", "enabled", "mode"}},

	"gpu.accel":  {instances: true, open: true, elements: []string{"device", "driver", "name", "numa_node", "vendor"}},
	"gpu.drm":    {instances: true, open: true, elements: []string{"device", "driver", "name", "numa_node", "render", "vendor", "vram_bytes"}},
	"gpu.nvidia": {attributes: true, instances: true, elements: []string{"excluded", "firmware", "location", "model", "module", "vbios", "version"}},
	"rdma.device": {instances: true, open: true, elements: []string{"board_id", "fw_ver", "link_layer", "name", "node_type", "numa_node",
		"port", "speed", "state"}},
	"network.device":  {instances: true, elements: []string{"mtu", "name", "operstate", "speed", "sriov_numvfs", "sriov_totalvfs"}},
	"network.virtual": {instances: true, elements: []string{"mtu", "name", "operstate", "speed"}},
	"pci.device": {instances: true, elements: []string{"class", "device", "iommu/intel-iommu/version", "iommu_group/type",
		"sriov_totalvfs", "subsystem_device", "subsystem_vendor", "vendor"}},
	"usb.device":     {instances: true, elements: []string{"class", "device", "serial", "vendor"}},
	"storage.block":  {instances: true, elements: []string{"dax", "name", "nr_zones", "rotational", "zoned"}},
	"storage.device": {instances: true, elements: []string{"dax", "name", "nr_zones", "rotational", "zoned"}},
	"storage.nvme":   {instances: true, open: true, elements: []string{"cntrltype", "firmware_rev", "model", "name", "numa_node", "state", "transport"}},

	"system.osrelease": {attributes: true, open: true, elements: []string{"ID", "ID_LIKE", "NAME", "PRETTY_NAME", "VARIANT_ID",
		"VERSION", "VERSION_CODENAME", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor"}},
	"system.name": {attributes: true, elements: []string{"nodename"}},
	"system.dmiid": {attributes: true, elements: []string{"bios_date", "bios_release", "bios_vendor", "bios_version", "board_asset_tag",
		"board_name", "board_vendor", "board_version", "chassis_asset_tag", "chassis_type", "chassis_vendor", "chassis_version",
		"ec_firmware_release", "product_family", "product_name", "product_sku", "product_version", "sys_vendor"}},

	"system.tpm":  {attributes: true, elements: []string{"present", "version"}},
	"system.boot": {attributes: true, elements: []string{"id"}},

	"source.unread": {flags: true, open: true},

	"dra.device": {instances: true, open: true, elements: []string{"device.name", "driver.name", "pool.name", "shared", "taints"},
		prefixes: []string{"capacity."}},
	"dra.driver": {instances: true, elements: []string{"complete", "devices", "name", "pools"}},

	"kubernetes.node": {attributes: true, elements: []string{"architecture", "container_runtime", "container_runtime_version",
		"kernel_version", "kubelet_version", "operating_system", "os_image"}},
	"kubernetes.provider":        {attributes: true, elements: []string{"id", "name"}},
	"kubernetes.declaredfeature": {flags: true, open: true},
	"kubernetes.runtimehandler":  {instances: true, elements: []string{"name", "recursive_read_only_mounts", "user_namespaces"}},
	"kubernetes.allocatable":     {attributes: true, open: true, elements: []string{"pods"}},

	"local.label":    {attributes: true, open: true},
	"local.feature":  {attributes: true, open: true},
	"fake.flag":      {flags: true, open: true},
	"fake.attribute": {attributes: true, open: true},
	"fake.instance":  {instances: true, open: true},
	"rule.matched":   {attributes: true, open: true},
}

// ownDomains are domains that only Assay publishes. Other publishers use local, custom and fake freely, and may use names such as
// gpu and rdma.
var ownDomains = map[string]bool{
	"cpu": true, "kernel": true, "memory": true, "network": true, "pci": true, "usb": true, "storage": true, "system": true,
}

// featureNames are the names of the catalog, sorted.
var featureNames = func() []string {
	names := make([]string, 0, len(catalog))
	for name := range catalog {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}()

// Known reports whether Assay's sources may publish the feature. The name must be in lower case.
func Known(feature string) bool {
	_, ok := catalog[feature]
	return ok
}

func featuresOf(domain string) []string {
	var out []string
	for _, name := range featureNames {
		if strings.HasPrefix(name, domain+".") {
			out = append(out, name)
		}
	}
	return out
}

// pciBaseClasses are the first two digits of all classes in the PCI code and ID assignment specification.
var pciBaseClasses = map[string]struct{}{
	"00": {}, "01": {}, "02": {}, "03": {}, "04": {}, "05": {}, "06": {}, "07": {}, "08": {}, "09": {}, "0a": {}, "0b": {},
	"0c": {}, "0d": {}, "0e": {}, "0f": {}, "10": {}, "11": {}, "12": {}, "13": {}, "40": {}, "ff": {},
}

// maxTypo is the maximum number of letters by which a suggested name may differ.
const maxTypo = 2

// nearest returns the name that is most similar to s, or "" if none is similar.
func nearest(s string, names []string) string {
	best, bestDistance := "", maxTypo+1
	like := shapeOf(s)
	for _, name := range names {
		known, ok := shapes()[name]
		if !ok {
			known = shapeOf(name)
		}
		if known.squashed == like.squashed {
			return name
		}
		if known.digits != like.digits {
			continue // names of different versions are similar but not typos
		}
		if d := suggest.Distance(s, name, bestDistance); d < bestDistance && d*4 <= len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}

// shape is what nearest compares of a name.
type shape struct{ squashed, digits string }

func shapeOf(name string) shape { return shape{squash(name), digits(name)} }

// shapes are those of the names in the catalog, because each name of a rule is compared with many of them.
var shapes = sync.OnceValue(func() map[string]shape {
	out := map[string]shape{}
	for name, f := range catalog {
		out[name] = shapeOf(name)
		for _, element := range slices.Concat(f.elements, f.valued) {
			out[element] = shapeOf(element)
		}
	}
	return out
})

// sameButTypo reports whether a name differs so little from a known one that it must be a typo.
func sameButTypo(s, known string) bool {
	return squash(s) == squash(known) || len(known) >= 6 && suggest.Distance(s, known, 2) == 1
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "", "/", "")

// squash removes differences in case, separators and plural.
func squash(s string) string {
	s = strings.ToLower(separators.Replace(s))
	return strings.TrimSuffix(s, "s")
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
