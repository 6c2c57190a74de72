package host

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// CPUFacts holds the facts that a processor reports through instructions and the auxiliary vector. Archives contain them as JSON.
type CPUFacts struct {
	// Arch is the architecture in Go's terms, such as amd64.
	Arch string `json:"arch"`
	// Vendor, Family and Model are from CPUID; x86 only.
	Vendor string `json:"vendor,omitempty"`
	Family int    `json:"family,omitempty"`
	Model  int    `json:"model,omitempty"`
	// Hypervisor is "none", the lower-case ID of a known hypervisor, such as kvm, or the vendor string of another, which can
	// contain any character; empty if the architecture does not report it.
	Hypervisor string `json:"hypervisor,omitempty"`
	// Flags are the sorted CPUID capabilities with the names of klauspost/cpuid; x86 only.
	Flags []string `json:"flags,omitempty"`
	// X64Level is the x86-64 microarchitecture level, 1 to 4; 0 on other architectures.
	X64Level int `json:"x64Level,omitempty"`
	// AVX10Version is the version of AVX10, 0 without it.
	AVX10Version int `json:"avx10Version,omitempty"`
	// BaseHz is the nominal frequency in Hz, 0 if unknown.
	BaseHz int64 `json:"baseHz,omitempty"`
	// SGXEPC is the memory of all SGX enclave page cache sections in bytes according to CPUID: 0 if the firmware has not enabled
	// SGX.
	SGXEPC uint64 `json:"sgxEPC,omitempty"`
	// HWCAP and HWCAP2 are the entries AT_HWCAP and AT_HWCAP2 of the auxiliary vector, see getauxval(3).
	HWCAP  uint64 `json:"hwcap,omitempty"`
	HWCAP2 uint64 `json:"hwcap2,omitempty"`
}

// Has reports whether the processor has a CPUID flag.
func (c CPUFacts) Has(flag string) bool { return slices.Contains(c.Flags, flag) }

// thisCPU reads the facts of the processor that the program runs on.
func thisCPU() CPUFacts {
	c := &cpuid.CPU
	f := CPUFacts{Arch: runtime.GOARCH}
	f.HWCAP, f.HWCAP2 = hwcaps()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "386" {
		// On ARM, cpuid has the identification of the core that this thread runs on, which can be another one each time.
		return f
	}
	f.Vendor, f.Family, f.Model = c.VendorID.String(), c.Family, c.Model
	f.AVX10Version, f.BaseHz = int(c.AVX10Level), c.Hz
	f.Flags = c.FeatureSet()
	slices.Sort(f.Flags)
	f.X64Level = c.X64Level()
	f.Hypervisor = hypervisor(c)
	if c.SGX.Available {
		for _, s := range c.SGX.EPCSections {
			f.SGXEPC += s.EPCSize
		}
	}
	return f
}

func hypervisor(c *cpuid.CPUInfo) string {
	switch {
	case !c.Has(cpuid.HYPERVISOR):
		return "none"
	case c.HypervisorVendorID == cpuid.VendorUnknown:
		return cmp.Or(c.HypervisorVendorString, "unknown")
	}
	return strings.ToLower(c.HypervisorVendorID.String())
}

// CPUFlags returns the flags that CPUFacts.Flags may contain.
func CPUFlags() (out []string) {
	for id := cpuid.FeatureID(0); ; id++ {
		name := id.String()
		switch {
		case cpuid.ParseFeature(name) == id && id != cpuid.UNKNOWN:
			out = append(out, name)
		case strings.HasPrefix(name, "FeatureID("): // beyond the last one
			return out
		}
	}
}
