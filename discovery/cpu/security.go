package cpu

import (
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// counts are the elements of cpu.security that are numbers: they are for rules and extended resources and do not become labels.
var counts = map[string]bool{"sgx.epc": true, "tdx.total_keys": true, "sev.asids": true, "sev.encrypted_state_ids": true}

// security publishes trusted execution environments: SGX and TDX of Intel, SEV of AMD, Secure Execution of IBM Z.
func security(r *discovery.Result, h host.Host, facts host.CPUFacts) {
	attributes := map[string]string{}
	capacity := miscCapacity(r, h)
	enabled := func(name string, on bool, count, resource string) {
		if !on {
			return
		}
		attributes[name] = "true"
		if n, ok := capacity[resource]; ok {
			attributes[count] = n
		}
	}
	if facts.SGXEPC > 0 {
		attributes["sgx.enabled"] = "true"
		attributes["sgx.epc"] = strconv.FormatUint(facts.SGXEPC, 10)
	}
	enabled("tdx.enabled", parameter(r, h, "kvm_intel", "tdx"), "tdx.total_keys", "tdx")
	enabled("tdx.protected", facts.Has("TDX_GUEST"), "", "")
	enabled("sev.enabled", parameter(r, h, "kvm_amd", "sev"), "sev.asids", "sev")
	enabled("sev.es.enabled", parameter(r, h, "kvm_amd", "sev_es"), "sev.encrypted_state_ids", "sev_es")
	enabled("sev.snp.enabled", parameter(r, h, "kvm_amd", "sev_snp"), "", "")
	if facts.Arch == "s390x" {
		enabled("se.enabled", secureExecution(r, h), "", "")
	}

	r.Attributes(SecurityFeature, attributes)
	for k, v := range attributes {
		if !counts[k] {
			r.Labels["cpu-security."+k] = v
		}
	}
	// Rules written for NFD before v0.14 use this feature.
	if attributes["sgx.enabled"] != "" {
		r.Attributes(SGXFeature, map[string]string{"enabled": "true"})
	}
	if attributes["se.enabled"] != "" {
		r.Attributes(SEFeature, map[string]string{"enabled": "true"})
	}
}

// parameter reports whether a boolean parameter of a kernel module is on; it is "Y" or "N" or a number, see Documentation/virt/kvm.
func parameter(r *discovery.Result, h host.Host, module, name string) bool {
	v, err := h.ReadAttribute("sys/module/" + module + "/parameters/" + name)
	r.Problem(host.Present(err))
	return v == "Y" || v == "1"
}

// secureExecution reports whether the machine can host protected guests, see Documentation/virt/kvm/s390/s390-pv.rst: the
// ultravisor supports it, and it is enabled on the kernel command line.
func secureExecution(r *discovery.Result, h host.Host) bool {
	v, err := h.ReadAttribute("sys/firmware/uv/prot_virt_host")
	r.Problem(host.Present(err))
	return v == "1"
}

// miscCapacity reads the misc cgroup controller, which counts keys of encrypted guests and enclave memory, see
// Documentation/admin-guide/cgroup-v2.rst. Each line has a resource and a number.
func miscCapacity(r *discovery.Result, h host.Host) map[string]string {
	data, err := h.ReadPrefix("sys/fs/cgroup/misc.capacity", host.MaxAttributeSize)
	if err != nil {
		r.Problem(host.Present(err))
		return nil
	}
	return ParseCapacity(data)
}

// ParseCapacity returns the numeric capacities in misc.capacity.
func ParseCapacity(data []byte) map[string]string {
	capacity := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if _, err := strconv.ParseUint(f[1], 10, 64); err == nil {
			capacity[f[0]] = f[1]
		}
	}
	return capacity
}
