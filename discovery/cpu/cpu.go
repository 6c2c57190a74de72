// Package cpu discovers processors: capabilities, model, power management, topology and trusted execution.
package cpu

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "cpu"

// Features of the source.
const (
	CPUIDFeature       = "cpu.cpuid"
	ModelFeature       = "cpu.model"
	CacheFeature       = "cpu.cache"
	CStateFeature      = "cpu.cstate"
	PStateFeature      = "cpu.pstate"
	RDTFeature         = "cpu.rdt"
	SecurityFeature    = "cpu.security"
	SSTFeature         = "cpu.sst"
	TopologyFeature    = "cpu.topology"
	CoprocessorFeature = "cpu.coprocessor"

	// SGXFeature and SEFeature are the names that parts of SecurityFeature had until NFD v0.14.
	SGXFeature = "cpu.sgx"
	SEFeature  = "cpu.se"
)

// devicesDir is the sysfs directory of CPUs, see Documentation/ABI/testing/sysfs-devices-system-cpu.
const devicesDir = "sys/devices/system/cpu"

// Config is sources.cpu of the worker's configuration.
type Config struct {
	CPUID CPUIDConfig `json:"cpuid,omitempty"`
}

// CPUIDConfig configures which capabilities become labels. It does not limit the feature for rules.
type CPUIDConfig struct {
	// AttributeBlacklist lists capabilities that do not become labels.
	AttributeBlacklist []string `json:"attributeBlacklist,omitempty"`
	// AttributeWhitelist lists the only capabilities that become labels; if it is not empty, the blacklist is ignored.
	AttributeWhitelist []string `json:"attributeWhitelist,omitempty"`
	// MachineAttributes adds machine_type and generation of IBM Z, under names that are proposed for Node Feature Discovery.
	MachineAttributes bool `json:"machineAttributes,omitempty"`
}

// DefaultConfig returns the default configuration: no labels for capabilities that nearly all CPUs have, and for those with a
// separate label.
func DefaultConfig() Config {
	return Config{CPUID: CPUIDConfig{AttributeBlacklist: []string{
		"AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX", "MMXEXT", "NX", "POPCNT",
		"RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3", "SSE4", "SSE42", "SSSE3", "TDX_GUEST",
	}}}
}

func (c CPUIDConfig) wants(flag string) bool {
	if len(c.AttributeWhitelist) > 0 {
		return slices.Contains(c.AttributeWhitelist, flag)
	}
	return !slices.Contains(c.AttributeBlacklist, flag)
}

// Source discovers processors.
type Source struct{ config Config }

// New returns the source.
func New(config Config) *Source { return &Source{config: config} }

// Name returns "cpu".
func (*Source) Name() string { return Name }

// Discover reads the features of the processors.
func (s *Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	facts := h.System.CPU()
	info, err := readInfo(h)
	r.Problem(err)

	s.cpuid(&r, facts, info)
	model(&r, h, facts, info)
	cstate(&r, h)
	pstate(&r, h)
	rdt(&r, h, facts, info)
	security(&r, h, facts)
	sst(&r, h, facts)
	topology(&r, h)
	caches(&r, h)
	coprocessor(&r, h)
	return r, nil
}

// Glance reads what an administrator or a daemon can change: which CPUs are online, and their frequency limits. Frequencies are
// nearly always the same for all CPUs, so it only reads the first of possibly hundreds of policies.
func (*Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	seen := map[string]string{}
	for _, err := range discovery.ReadOptional(h, devicesDir, seen,
		"online", "smt/active", "intel_pstate/status", "intel_pstate/no_turbo", "cpufreq/policy0/scaling_governor") {
		r.Problem(err)
	}
	r.Attributes(Name, seen)
	return r, true
}

// cpuid publishes capabilities: from the CPUID instruction on x86, and from the kernel's auxiliary vector on other architectures.
func (s *Source) cpuid(r *discovery.Result, facts host.CPUFacts, info Info) {
	flags := Flags(facts, info)
	if len(flags) == 0 {
		return // every processor has some
	}
	r.Flags(CPUIDFeature, flags)
	for _, f := range flags {
		// POWER5+ is not a name that a label can have.
		if s.config.CPUID.wants(f) && !strings.Contains(f, "+") {
			r.Labels["cpu-cpuid."+f] = "true"
		}
	}
	attributes := map[string]string{}
	if facts.AVX10Version > 0 {
		attributes["AVX10_VERSION"] = strconv.Itoa(facts.AVX10Version)
		r.Labels["cpu-cpuid.AVX10_VERSION"] = attributes["AVX10_VERSION"]
	}
	if s.config.CPUID.MachineAttributes && facts.Arch == "s390x" {
		if machine := modelOf(facts.Arch, info)["id"]; machine != "" {
			attributes["machine_type"] = machine
			if generation, ok := generations[machine]; ok {
				attributes["generation"] = generation
			}
		}
		for _, name := range []string{"machine_type", "generation"} {
			if v, ok := attributes[name]; ok {
				r.Labels["cpu-cpuid."+name] = v
			}
		}
	}
	r.Attributes(CPUIDFeature, attributes)
}

// generations are the generations of IBM Z by machine type, see arch/s390/kernel/processor.c.
var generations = map[string]string{
	"2097": "z10", "2098": "z10", "2817": "z196", "2818": "z196", "2827": "zEC12", "2828": "zEC12", "2964": "z13", "2965": "z13",
	"3906": "z14", "3907": "z14", "8561": "z15", "8562": "z15", "3931": "z16", "3932": "z16", "9175": "z17", "9176": "z17",
}

// model identifies the processor, from /proc/cpuinfo where there is no CPUID. The identification becomes labels; the name, which
// contains spaces, and the microcode version, which can change at run time, do not.
func model(r *discovery.Result, h host.Host, facts host.CPUFacts, info Info) {
	attributes := map[string]string{}
	if facts.Vendor != "" {
		attributes["vendor_id"] = facts.Vendor
		attributes["family"] = strconv.Itoa(facts.Family)
		attributes["id"] = strconv.Itoa(facts.Model)
	} else {
		for k, v := range modelOf(facts.Arch, info) {
			attributes[k] = v
		}
	}
	if hv := hypervisor(r, h, facts); hv != "" {
		attributes["hypervisor"] = hv
	}
	for k, v := range attributes {
		r.Labels["cpu-model."+k] = v
	}
	for k, v := range map[string]string{
		"architecture": architecture(h, facts),
		"name":         modelName(info),
		"stepping":     info["stepping"],
		"microcode":    info["microcode"],
	} {
		if v != "" {
			attributes[k] = v
		}
	}
	if len(attributes) > 0 {
		r.Attributes(ModelFeature, attributes)
	}
}

// architecture is the kernel's name, such as x86_64 or aarch64, which other tools print too.
func architecture(h host.Host, facts host.CPUFacts) string {
	if uts, err := h.System.Uname(); err == nil && uts.Machine != "" {
		return uts.Machine
	}
	return facts.Arch
}

// modelName is the vendor's name of the model; architectures print it under different keys, or not at all.
func modelName(info Info) string {
	for _, key := range []string{"model name", "Model Name", "cpu", "uarch"} {
		if name := info[key]; name != "" {
			return strings.Join(strings.Fields(name), " ")
		}
	}
	return ""
}

// hypervisor returns the name of the hypervisor. IBM Z has no CPUID: /proc/sysinfo has the control program.
func hypervisor(r *discovery.Result, h host.Host, facts host.CPUFacts) string {
	if facts.Arch != "s390x" {
		return inLabel(facts.Hypervisor)
	}
	data, err := h.ReadText("proc/sysinfo")
	if err == nil && !bytes.Contains(data, []byte(":")) {
		err = errors.New("/proc/sysinfo describes no machine")
	}
	if err != nil {
		r.Problem(err)
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(strings.TrimSpace(key), "Control Program") {
			return inLabel(host.Clean([]byte(value))) // such as "KVM/Linux" or "z/VM    7.3.0"
		}
	}
	return "none"
}

// notInLabel are the characters that a label value cannot have.
var notInLabel = regexp.MustCompile(`[^-A-Za-z0-9_.]+`)

// inLabel returns a name as a label value, as NFD does.
func inLabel(name string) string { return notInLabel.ReplaceAllString(name, "_") }

// coprocessor detects the gzip accelerator of POWER, see Documentation/ABI/testing/sysfs-bus-vio.
func coprocessor(r *discovery.Result, h host.Host) {
	ok, err := h.Exists("sys/devices/vio/ibm,compression-v1/nx_gzip_caps")
	if err != nil {
		r.Problem(err)
		return
	}
	attributes := map[string]string{}
	if ok {
		attributes["nx_gzip"] = "true"
		r.Labels["cpu-coprocessor.nx_gzip"] = "true"
	}
	r.Attributes(CoprocessorFeature, attributes)
}
