package cpu

import (
	"fmt"
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
	unknown := facts.Arch == ""
	enabled := func(name string, on bool, err error, count, resource string) {
		if err != nil {
			r.Problem(err)
			unknown = true
		}
		if !on {
			return
		}
		attributes[name] = "true"
		if n, ok := capacity[resource]; ok {
			attributes[count] = n
		}
	}
	parameter := func(name, module, parameter, count, resource string) {
		on, err := boolean(h, "sys/module/"+module+"/parameters/"+parameter)
		enabled(name, on, err, count, resource)
	}
	if facts.SGXEPC > 0 {
		attributes["sgx.enabled"] = "true"
		attributes["sgx.epc"] = strconv.FormatUint(facts.SGXEPC, 10)
	}
	parameter("tdx.enabled", "kvm_intel", "tdx", "tdx.total_keys", "tdx")
	enabled("tdx.protected", facts.Has("TDX_GUEST"), nil, "", "")
	parameter("sev.enabled", "kvm_amd", "sev", "sev.asids", "sev")
	parameter("sev.es.enabled", "kvm_amd", "sev_es", "sev.encrypted_state_ids", "sev_es")
	parameter("sev.snp.enabled", "kvm_amd", "sev_snp", "", "")
	if facts.Arch == "s390x" {
		on, err := secureExecution(h)
		enabled("se.enabled", on, err, "", "")
	}

	if unknown {
		// An element or a label that is missing means "not enabled", which is not known of all of them.
		return
	}
	for k, v := range attributes {
		if !counts[k] {
			r.Labels["cpu-security."+k] = v
		}
	}
	r.Attributes(SecurityFeature, attributes)
	// Rules written for NFD before v0.14 use these features.
	if attributes["sgx.enabled"] != "" {
		r.Attributes(SGXFeature, map[string]string{"enabled": "true"})
	}
	if attributes["se.enabled"] != "" {
		r.Attributes(SEFeature, map[string]string{"enabled": "true"})
	}
}

// boolean reads a boolean parameter of the kernel, which is "Y" or "N" or a number, see Documentation/virt/kvm. Without the module
// there is no file, and the parameter is off.
func boolean(h host.Host, file string) (bool, error) {
	v, err := h.ReadAttribute(file)
	if err != nil {
		return false, host.Present(err)
	}
	switch v {
	case "Y", "1":
		return true, nil
	case "N", "0":
		return false, nil
	}
	return false, discovery.NotA("switch, Y or N", file, v)
}

// secureExecution reports whether the machine can host protected guests, see Documentation/virt/kvm/s390/s390-pv.rst: the
// ultravisor supports it, and it is enabled on the kernel command line.
func secureExecution(h host.Host) (bool, error) {
	on, err := boolean(h, "sys/firmware/uv/prot_virt_host")
	if err == nil && !on {
		err = discovery.FirmwareHidden(h)
	}
	return on, err
}

// miscCapacity reads the misc cgroup controller, which counts keys of encrypted guests and enclave memory, see
// Documentation/admin-guide/cgroup-v2.rst. Each line has a resource and a number.
func miscCapacity(r *discovery.Result, h host.Host) map[string]string {
	data, err := h.ReadPrefix("sys/fs/cgroup/misc.capacity", host.MaxAttributeSize)
	if err != nil {
		r.Problem(host.Present(err))
		return nil
	}
	capacity, err := ParseCapacity(host.Text(data))
	r.Problem(err)
	return capacity
}

func digits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// ParseCapacity returns the capacities in misc.capacity, and an error for the last line that has none.
func ParseCapacity(data []byte) (capacity map[string]string, err error) {
	capacity = map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 2 && digits(f[1]) {
			capacity[f[0]] = f[1]
		} else {
			err = fmt.Errorf("/sys/fs/cgroup/misc.capacity: %.40q is not a resource with a number", line)
		}
	}
	return capacity, err
}
