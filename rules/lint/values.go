package lint

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/warning"
)

var (
	boolean = []string{"false", "true"}
	digit   = []string{"0", "1"} // values of boolean files in sysfs
	// operstate has the values of operstates in the kernel's net/core/net-sysfs.c.
	operstate = []string{"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"}
)

// closed maps elements with a fixed set of values, by feature and element, to the values.
var closed = map[string]map[string][]string{
	"cpu.cstate":                  {"enabled": boolean},
	"cpu.pstate":                  {"turbo": boolean},
	"cpu.security":                {"se.enabled": boolean, "sev.enabled": boolean, "sev.es.enabled": boolean, "sev.snp.enabled": boolean, "sgx.enabled": boolean, "tdx.enabled": boolean, "tdx.protected": boolean},
	"cpu.topology":                {"hardware_multithreading": boolean},
	"kernel.iommu":                {"enabled": boolean},
	"kernel.kvm":                  {"enabled": boolean},
	"kernel.secureboot":           {"enabled": boolean},
	"kernel.selinux":              {"enabled": boolean},
	"memory.hugepages":            {"enabled": boolean},
	"memory.numa":                 {"is_numa": boolean},
	"memory.swap":                 {"enabled": boolean},
	"memory.transparenthugepages": {"enabled": boolean},
	"network.device":              {"operstate": operstate},
	"network.virtual":             {"operstate": operstate},
	// The kernel's drivers/infiniband/core/sysfs.c, without numbers and in lower case.
	"rdma.device": {"state": {"nop", "down", "init", "armed", "active", "active_defer", "unknown"}, "link_layer": {"InfiniBand", "Ethernet", "Unspecified"}},
	// The kernel's drivers/nvme/host/sysfs.c.
	"storage.nvme":   {"state": {"new", "live", "resetting", "connecting", "deleting", "deleting (no IO)", "dead"}, "cntrltype": {"reserved", "io", "discovery", "admin"}},
	"storage.block":  {"dax": digit, "rotational": digit},
	"storage.device": {"dax": digit, "rotational": digit},
	"system.tpm":     {"present": boolean},
}

// everywhere lists elements that exist on all nodes with the value true or false.
var everywhere = map[string]string{
	"memory.numa": "is_numa", "memory.swap": "enabled", "kernel.selinux": "enabled", "kernel.secureboot": "enabled",
	"kernel.iommu": "enabled", "system.tpm": "present",
}

// Names of CPU vendors by their CPUID string; cpu.model uses NFD's names.
var cpuVendors = map[string]string{
	"genuineintel": "Intel", "authenticamd": "AMD", "hygongenuine": "Hygon", "centaurhauls": "VIA", "intel": "Intel", "amd": "AMD",
	"hygon": "Hygon", "arm": "ARM",
}

// values warns about values that an element never has, and about tests for the existence of an element that always exists.
func (l *linter) values(at place, name, key string, e *nfdv1alpha1.MatchExpression) {
	if everywhere[name] == key && e.Op == nfdv1alpha1.MatchExists {
		l.warn(at.path(), warning.Suspicious, "%s is false where it is not true, and exists on either; write op: IsTrue", key)
		return
	}
	if e.Op != nfdv1alpha1.MatchIn && e.Op != nfdv1alpha1.MatchNotIn {
		return
	}
	known := closed[name][key]
	for i, v := range e.Value {
		right := cpuVendors[strings.ToLower(v)]
		switch {
		case name == "system.dmiid" && key == "chassis_type" && !isNumber(v):
			l.warn(at.value(i), warning.Suspicious, "chassis_type is a number of the SMBIOS specification, such as 3 for a desktop or 23 for a rack mount chassis, and never %q", v)
		case known != nil && !slices.Contains(known, v) && like(v, known) != "":
			l.warn(at.value(i), warning.Suspicious, "%s is never %q: write %s", key, v, like(v, known))
		case known != nil && !slices.Contains(known, v):
			l.warn(at.value(i), warning.Suspicious, "%s is never %q: it is %s", key, v, oneOf(known))
		case name == "cpu.model" && key == "vendor_id" && right != "" && right != v:
			l.warn(at.value(i), warning.Suspicious, "vendor_id is never %q: write %s", v, right)
		}
	}
}

// like returns the value that differs only in case and separators, and "" if there is none.
func like(v string, known []string) string {
	for _, k := range known {
		if strings.EqualFold(separators.Replace(k), separators.Replace(v)) {
			return k
		}
	}
	return ""
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// oneOf lists the values of an element.
func oneOf(known []string) string {
	if len(known) > 2 {
		return "one of " + strings.Join(known, ", ")
	}
	return strings.Join(known, " or ")
}
