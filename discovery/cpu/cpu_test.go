package cpu_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/host"
)

func discover(t *testing.T, config cpu.Config, archive string) discovery.Result {
	t.Helper()
	h, err := host.FromArchive([]byte(archive))
	if err != nil {
		t.Fatal(err)
	}
	r, err := cpu.New(config).Discover(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const intel = `-- host.json --
{"cpu": {"arch": "amd64", "vendor": "Intel", "family": 6, "model": 85, "hypervisor": "none", "baseHz": 2300000000}}
-- proc/cpuinfo --
processor	: 0
flags		: fpu

-- sys/devices/system/cpu/ --
online: 0
`

// TestAttributes compares a feature, and the labels of the source, for a few lines of a host.
func TestAttributes(t *testing.T) {
	tests := map[string]struct {
		archive string
		feature string
		want    map[string]string
		labels  map[string]string // only those that are not cpuid or model
	}{
		"intel_idle may sleep": {
			archive: "-- sys/devices/system/cpu/cpuidle/ --\ncurrent_driver: intel_idle\n-- sys/module/intel_idle/parameters/ --\nmax_cstate: 9\n",
			feature: cpu.CStateFeature,
			want:    map[string]string{"enabled": "true"},
			labels:  map[string]string{"cpu-cstate.enabled": "true"},
		},
		"intel_idle must not sleep": {
			archive: "-- sys/devices/system/cpu/cpuidle/ --\ncurrent_driver: intel_idle\n-- sys/module/intel_idle/parameters/ --\nmax_cstate: 0\n",
			feature: cpu.CStateFeature,
			want:    map[string]string{"enabled": "false"},
			labels:  map[string]string{"cpu-cstate.enabled": "false"},
		},
		"another idle driver": {
			archive: "-- sys/devices/system/cpu/cpuidle/ --\ncurrent_driver: acpi_idle\n-- sys/module/intel_idle/parameters/ --\nmax_cstate: 9\n",
			feature: cpu.CStateFeature,
			want:    map[string]string{},
		},
		"governors differ": {
			archive: "-- sys/devices/system/cpu/ --\nintel_pstate/status: active\nintel_pstate/no_turbo: 1\ncpufreq/policy0/scaling_governor: powersave\ncpufreq/policy1/scaling_governor: performance\n",
			feature: cpu.PStateFeature,
			want:    map[string]string{"status": "active", "turbo": "false"},
			labels:  map[string]string{"cpu-pstate.status": "active", "cpu-pstate.turbo": "false"},
		},
		"governor under both of its names": {
			archive: "-- sys/devices/system/cpu/ --\nintel_pstate/status: active\nintel_pstate/no_turbo: 0\ncpufreq/policy0/scaling_governor: powersave\n",
			feature: cpu.PStateFeature,
			want:    map[string]string{"status": "active", "turbo": "true", "scaling_governor": "powersave", "scaling": "powersave"},
			labels:  map[string]string{"cpu-pstate.status": "active", "cpu-pstate.turbo": "true", "cpu-pstate.scaling_governor": "powersave"},
		},
		"pstate off": {
			archive: "-- sys/devices/system/cpu/ --\nintel_pstate/status: off\n",
			feature: cpu.PStateFeature,
			want:    map[string]string{},
		},
		"base frequencies above and below": {
			archive: "-- sys/devices/system/cpu/ --\ncpufreq/policy0/base_frequency: 2700000\ncpufreq/policy1/base_frequency: 2100000\n",
			feature: cpu.SSTFeature,
			want:    map[string]string{"bf.enabled": "true"},
			labels:  map[string]string{"cpu-power.sst_bf.enabled": "true"},
		},
		"base frequencies equal": {
			archive: "-- sys/devices/system/cpu/ --\ncpufreq/policy0/base_frequency: 2300000\ncpufreq/policy1/base_frequency: 2300000\n",
			feature: cpu.SSTFeature,
			want:    map[string]string{},
		},
		"cores of two kinds": {
			archive: "-- sys/devices/cpu_atom/ --\ncpus: 8-15\n-- sys/devices/cpu_core/ --\ncpus: 0-7\n-- sys/devices/system/cpu/ --\nonline: 0\ncpufreq/policy0/base_frequency: 2700000\ncpufreq/policy1/base_frequency: 1700000\n",
			feature: cpu.SSTFeature,
			want:    map[string]string{},
			labels:  map[string]string{"cpu-cpu_atom": "true", "cpu-cpu_core": "true"},
		},
		"two threads a core, two sockets, old kernel": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-3\n" +
				"cpu0/topology/thread_siblings_list: 0,2\ncpu0/topology/physical_package_id: 0\ncpu0/topology/core_siblings_list: 0,2\n" +
				"cpu1/topology/thread_siblings_list: 1,3\ncpu1/topology/physical_package_id: 1\ncpu1/topology/core_siblings_list: 1,3\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "4", "core_count": "2", "hardware_multithreading": "true", "socket_count": "2"},
			labels:  map[string]string{"cpu-hardware_multithreading": "true"},
		},
		"threads that are offline count nowhere": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-1\nsmt/active: 0\n" +
				"cpu0/topology/thread_siblings_list: 0\ncpu1/topology/thread_siblings_list: 1\n" +
				"cpu2/topology/thread_siblings_list: 2\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "2", "core_count": "2", "hardware_multithreading": "false"},
			labels:  map[string]string{"cpu-hardware_multithreading": "false"},
		},
		"package ids of -1: the firmware does not number them": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-1\n" +
				"cpu0/topology/thread_siblings_list: 0\ncpu0/topology/physical_package_id: -1\n" +
				"cpu1/topology/thread_siblings_list: 1\ncpu1/topology/physical_package_id: -1\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "2", "core_count": "2", "hardware_multithreading": "false"},
			labels:  map[string]string{"cpu-hardware_multithreading": "false"},
		},
		"a kernel that cannot switch threads off says that none are active": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-1\nsmt/active: 0\nsmt/control: notimplemented\n" +
				"cpu0/topology/thread_siblings_list: 0-1\ncpu1/topology/thread_siblings_list: 0-1\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "2", "core_count": "1", "hardware_multithreading": "true"},
			labels:  map[string]string{"cpu-hardware_multithreading": "true"},
		},
		"lists of CPUs that end in a zero byte, as those of Linux 5.15 on arm64": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-3\n" +
				"cpu0/topology/thread_siblings_list: 0\x00\ncpu0/topology/physical_package_id: 0\ncpu0/topology/package_cpus_list: 0-1\x00\n" +
				"cpu1/topology/thread_siblings_list: 1\x00\ncpu1/topology/physical_package_id: 0\n" +
				"cpu2/topology/thread_siblings_list: 2\x00\ncpu2/topology/physical_package_id: 1\ncpu2/topology/package_cpus_list: 2-3\x00\n" +
				"cpu3/topology/thread_siblings_list: 3\x00\ncpu3/topology/physical_package_id: 1\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "4", "core_count": "4", "hardware_multithreading": "false", "socket_count": "2"},
			labels:  map[string]string{"cpu-hardware_multithreading": "false"},
		},
		"empty lists of the CPUs of a package": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-1\n" +
				"cpu0/topology/thread_siblings_list: 0\ncpu0/topology/physical_package_id: 0\ncpu0/topology/package_cpus_list:\n" +
				"cpu1/topology/thread_siblings_list: 1\ncpu1/topology/physical_package_id: 1\ncpu1/topology/package_cpus_list:\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "2", "core_count": "2", "hardware_multithreading": "false", "socket_count": "2"},
			labels:  map[string]string{"cpu-hardware_multithreading": "false"},
		},
		"virtual machine without a topology": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-1\n",
			feature: cpu.TopologyFeature,
			want:    map[string]string{"cpu_count": "2"},
		},
		"caches of the first CPU, a cluster of cores for each of the last level": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 2-5\n" +
				"cpu2/cache/index0/level: 1\ncpu2/cache/index0/type: Data\ncpu2/cache/index0/size: 32K\n" +
				"cpu2/cache/index1/level: 2\ncpu2/cache/index1/type: Unified\ncpu2/cache/index1/size: 1024K\n" +
				"cpu2/cache/index1/shared_cpu_list: 2-3\ncpu4/cache/index1/shared_cpu_list: 4-5\n",
			feature: cpu.CacheFeature,
			want:    map[string]string{"l1d.bytes": "32768", "l2.bytes": "1048576", "l2.count": "2"},
		},
		"caches of a fast core where the first CPUs are slow": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0-3\n" +
				"cpu0/cpu_capacity: 382\ncpu1/cpu_capacity: 382\ncpu2/cpu_capacity: 1024\ncpu3/cpu_capacity: 1024\n" +
				"cpu0/cache/index0/level: 1\ncpu0/cache/index0/type: Data\ncpu0/cache/index0/size: 32K\n" +
				"cpu2/cache/index0/level: 1\ncpu2/cache/index0/type: Data\ncpu2/cache/index0/size: 64K\n" +
				"cpu2/cache/index1/level: 2\ncpu2/cache/index1/type: Unified\n" +
				"cpu0/cache/index1/shared_cpu_list: 0-1\ncpu2/cache/index1/shared_cpu_list: 2-3\n",
			feature: cpu.CacheFeature,
			want:    map[string]string{"l1d.bytes": "65536", "l2.count": "2"}, // the device tree has no size of the second level
		},
		"caches that do not say who shares them": {
			archive: "-- sys/devices/system/cpu/ --\nonline: 0\n" +
				"cpu0/cache/index0/level: 1\ncpu0/cache/index0/type: Data\ncpu0/cache/index0/size: 32K\n",
			feature: cpu.CacheFeature,
			want:    map[string]string{"l1d.bytes": "32768"},
		},
		"encrypted guests": {
			archive: "-- sys/module/kvm_amd/parameters/ --\nsev: Y\nsev_es: 1\nsev_snp: N\n-- sys/fs/cgroup/misc.capacity --\nsev 410\nsev_es 99\n",
			feature: cpu.SecurityFeature,
			want:    map[string]string{"sev.enabled": "true", "sev.asids": "410", "sev.es.enabled": "true", "sev.encrypted_state_ids": "99"},
			labels:  map[string]string{"cpu-security.sev.enabled": "true", "cpu-security.sev.es.enabled": "true"},
		},
		"trust domains": {
			archive: "-- sys/module/kvm_intel/parameters/ --\ntdx: Y\n-- sys/fs/cgroup/misc.capacity --\ntdx 63\n",
			feature: cpu.SecurityFeature,
			want:    map[string]string{"tdx.enabled": "true", "tdx.total_keys": "63"},
			labels:  map[string]string{"cpu-security.tdx.enabled": "true"},
		},
		"cache allocation with code apart from data": {
			archive: "-- proc/cpuinfo --\nprocessor\t: 0\nflags\t\t: fpu rdt_a cat_l3 cdp_l3 cat_l2\n\n-- sys/fs/resctrl/info/L3CODE/ --\nnum_closids: 8\n",
			feature: cpu.RDTFeature,
			want:    map[string]string{"RDTL3CA": "true", "RDTL2CA": "true", "RDTL3CA_NUM_CLOSID": "8"},
		},
		"flags beyond the length of a value": {
			archive: "-- proc/cpuinfo --\nprocessor\t: 0\nflags\t\t: " + strings.Repeat("avx512_long ", 300) + "mba\n\n",
			feature: cpu.RDTFeature,
			want:    map[string]string{"RDTMBA": "true"},
		},
		"gzip accelerator": {
			archive: "-- sys/devices/vio/ibm,compression-v1/nx_gzip_caps/ --\nreq_max_processed_len: 4\n",
			feature: cpu.CoprocessorFeature,
			want:    map[string]string{"nx_gzip": "true"},
			labels:  map[string]string{"cpu-coprocessor.nx_gzip": "true"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := discover(t, cpu.DefaultConfig(), intel+tt.archive)
			for _, p := range r.Problems {
				t.Errorf("problem: %v", p)
			}
			if diff := cmp.Diff(tt.want, r.Features.Attributes[tt.feature].Elements); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.feature, diff)
			}
			labels := map[string]string{}
			for k, v := range r.Labels {
				if !strings.HasPrefix(k, "cpu-model") {
					labels[k] = v
				}
			}
			if tt.labels == nil {
				tt.labels = map[string]string{}
			}
			if diff := cmp.Diff(tt.labels, labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMainframe(t *testing.T) {
	r := discover(t, cpu.DefaultConfig(), `-- host.json --
{"cpu": {"arch": "s390x", "hwcap": 2147}}
-- proc/cpuinfo --
vendor_id       : IBM/S390
# processors    : 2
features	: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx sie
processor 0: version = FF,  identification = 3933E8,  machine = 3931
processor 1: version = FF,  identification = 3933E8,  machine = 3931
-- proc/sysinfo --
Manufacturer:         IBM
LPAR Number:          12
VM00 Control Program: KVM/Linux
-- sys/firmware/uv/ --
prot_virt_host: 1
`)
	wantModel := map[string]string{"vendor_id": "IBM_S390", "id": "3931", "family": "3933E8", "hypervisor": "KVM_Linux", "architecture": "s390x"}
	if diff := cmp.Diff(wantModel, r.Features.Attributes[cpu.ModelFeature].Elements); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
	if v := r.Labels["cpu-model.hypervisor"]; v != "KVM_Linux" {
		t.Errorf("label of the hypervisor = %q, want KVM_Linux", v)
	}
	for _, f := range []string{cpu.SecurityFeature, cpu.SEFeature} {
		if len(r.Features.Attributes[f].Elements) != 1 {
			t.Errorf("%s = %v, want secure execution", f, r.Features.Attributes[f].Elements)
		}
	}
	var got []string
	for f := range r.Features.Flags[cpu.CPUIDFeature].Elements {
		got = append(got, f)
	}
	slices.Sort(got)
	want := []string{"DFP", "EIMM", "ESAN3", "VX", "ZARCH"} // 2147 has the bits 0, 1, 5, 6 and 11
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
}

// TestGenerationOfMainframes: the attributes are off by default, because their names are proposals.
func TestGenerationOfMainframes(t *testing.T) {
	for machine, want := range map[string]map[string]string{
		"3931": {"machine_type": "3931", "generation": "z16"}, "9176": {"machine_type": "9176", "generation": "z17"}, "1234": {"machine_type": "1234"},
	} {
		archive := "-- host.json --\n{\"cpu\": {\"arch\": \"s390x\", \"hwcap\": 2147}}\n-- proc/cpuinfo --\nvendor_id       : IBM/S390\n" +
			"processor 0: version = FF,  identification = 3933E8,  machine = " + machine + "\n"
		config := cpu.DefaultConfig()
		if got := discover(t, config, archive).Features.Attributes[cpu.CPUIDFeature].Elements; len(got) > 0 {
			t.Errorf("%s: the attributes are %v without the setting, want none", machine, got)
		}
		config.CPUID.MachineAttributes = true
		r := discover(t, config, archive)
		if diff := cmp.Diff(want, r.Features.Attributes[cpu.CPUIDFeature].Elements); diff != "" {
			t.Errorf("%s (-want +got):\n%s", machine, diff)
		}
		for name, value := range want {
			if got := r.Labels["cpu-cpuid."+name]; got != value {
				t.Errorf("%s: label cpu-cpuid.%s is %q, want %q", machine, name, got, value)
			}
		}
	}
}

func TestListsOfCapabilitiesLimitLabelsOnly(t *testing.T) {
	const archive = `-- host.json --
{"cpu": {"arch": "amd64", "vendor": "AMD", "flags": ["AVX2", "SSE2", "VAES"], "x64Level": 2, "avx10Version": 2}}
`
	for name, tt := range map[string]struct {
		config cpu.CPUIDConfig
		want   []string
	}{
		"defaults":             {cpu.DefaultConfig().CPUID, []string{"AVX10_VERSION", "AVX2", "VAES", "X86_64_V1", "X86_64_V2"}},
		"empty":                {cpu.CPUIDConfig{}, []string{"AVX10_VERSION", "AVX2", "SSE2", "VAES", "X86_64_V1", "X86_64_V2"}},
		"whitelist takes over": {cpu.CPUIDConfig{AttributeBlacklist: []string{"SSE2"}, AttributeWhitelist: []string{"SSE2"}}, []string{"AVX10_VERSION", "SSE2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := discover(t, cpu.Config{CPUID: tt.config}, archive)
			var got []string
			for k := range r.Labels {
				if f, ok := strings.CutPrefix(k, "cpu-cpuid."); ok {
					got = append(got, f)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if n := len(r.Features.Flags[cpu.CPUIDFeature].Elements); n != 5 {
				t.Errorf("%d flags in the feature, want all 5", n)
			}
		})
	}
}

// TestProcessorsOfOldKernels: kernels before 3.8 print what ARM processors share once, after the processors.
func TestProcessorsOfOldKernels(t *testing.T) {
	r := discover(t, cpu.DefaultConfig(), `-- host.json --
{"uname": {"release": "3.4.104", "machine": "armv7l"}, "cpu": {"arch": "arm"}}
-- proc/cpuinfo --
Processor	: ARMv7 Processor rev 4 (v7l)
processor	: 0
BogoMIPS	: 38.40

processor	: 1
BogoMIPS	: 76.80
Features	: of_another_processor

Features	: swp half thumb fastmult vfp edsp neon vfpv3 vfpv4
CPU implementer	: 0x41
CPU architecture: 7
CPU variant	: 0x0
CPU part	: 0xc07
CPU revision	: 4

Hardware	: board
`)
	want := []string{"EDSP", "FASTMUL", "HALF", "NEON", "SWP", "THUMB", "VFP", "VFPv3", "VFPv4"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(r.Features.Flags[cpu.CPUIDFeature].Elements))); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	model := map[string]string{"architecture": "armv7l", "vendor_id": "ARM", "family": "15", "id": "49268"}
	if diff := cmp.Diff(model, r.Features.Attributes[cpu.ModelFeature].Elements); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
}

func TestCapabilitiesOfOtherArchitectures(t *testing.T) {
	for name, tt := range map[string]struct {
		facts host.CPUFacts
		info  cpu.Info
		want  []string
	}{
		"arm64":                       {facts: host.CPUFacts{Arch: "arm64", HWCAP: 1 | 1<<22, HWCAP2: 1 << 1}, want: []string{"FP", "SVE", "SVE2"}},
		"bit without a name":          {facts: host.CPUFacts{Arch: "arm64", HWCAP: 1<<63 | 1}, want: []string{"FP"}},
		"power":                       {facts: host.CPUFacts{Arch: "ppc64le", HWCAP: 0x10000000 | 0x80 | 2, HWCAP2: 0x80000000 | 0x00040000 | 0x00800000}, want: []string{"ALTIVEC", "ARCH_2_07", "ARCH_3_00", "ARCH_3_1", "TRUE_LE", "VSX"}},
		"without an auxiliary vector": {facts: host.CPUFacts{Arch: "arm64"}, info: cpu.Info{"Features": "fp asimd"}, want: []string{"ASIMD", "FP"}},
		"levels are cumulative":       {facts: host.CPUFacts{Arch: "amd64", X64Level: 3}, want: []string{"X86_64_V1", "X86_64_V2", "X86_64_V3"}},
		"unknown architecture":        {facts: host.CPUFacts{Arch: "mips64le", HWCAP: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, cpu.Flags(tt.facts, tt.info)); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseCPUList(t *testing.T) {
	for in, want := range map[string][]int{
		"0": {0}, "0-3": {0, 1, 2, 3}, "0,8-9": {0, 8, 9}, "": nil,
	} {
		got, err := cpu.ParseCPUList(in)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("ParseCPUList(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "3-1", "-", "0-", ",", "0-4294967295", "0-99999999999", strings.Repeat("0-8000,", 3)} {
		if got, err := cpu.ParseCPUList(in); err == nil {
			t.Errorf("ParseCPUList(%q) = %d CPUs, want an error", in, len(got))
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("processor\t: 0\nflags\t: fpu\n\nprocessor\t: 1\n"))
	f.Add([]byte("sev 410\nsgx_epc 99999999999999999999\n"))
	f.Add([]byte("0-3,8,10-11"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for k, v := range cpu.ParseInfo(data) {
			if k == "" || len(v) > 16<<10 {
				t.Errorf("%q = %q", k, v)
			}
		}
		_, _ = cpu.ParseCapacity(data)
		if list, err := cpu.ParseCPUList(string(data)); err == nil && len(list) > 8192 {
			t.Errorf("%d CPUs", len(list))
		}
	})
}

func TestParseCacheSize(t *testing.T) {
	if got, err := cpu.ParseCacheSize("49152K"); err != nil || got != 48<<20 {
		t.Errorf("got %d, %v, want 48 MiB", got, err)
	}
	for _, size := range []string{"", "K", "-1K", "32", "32M", "99999999999K"} {
		if got, err := cpu.ParseCacheSize(size); err == nil {
			t.Errorf("ParseCacheSize(%q) = %d, want an error", size, got)
		}
	}
}

// TestHypervisorIsNamedAsInNFD: replacing NFD must not change the label.
func TestHypervisorIsNamedAsInNFD(t *testing.T) {
	for vendor, want := range map[string]string{
		"none": "none", "kvm": "kvm", "vmware": "vmware", "unknown": "unknown", "ACME Hyper/V 2.0": "ACME_Hyper_V_2.0",
	} {
		r := discover(t, cpu.DefaultConfig(), `-- host.json --
{"cpu": {"arch": "amd64", "vendor": "Intel", "family": 6, "model": 85, "hypervisor": "`+vendor+`"}}
`)
		if got := r.Features.Attributes[cpu.ModelFeature].Elements["hypervisor"]; got != want {
			t.Errorf("hypervisor of %q = %q, want %q", vendor, got, want)
		}
		if got := r.Labels["cpu-model.hypervisor"]; got != want {
			t.Errorf("label of %q = %q, want %q", vendor, got, want)
		}
	}
}
