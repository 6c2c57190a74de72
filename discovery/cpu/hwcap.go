package cpu

import (
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-project/assay/discovery/host"
)

// Flags returns the sorted names of a processor's capabilities. On x86 they are those of the CPUID instruction and one for each
// supported microarchitecture level. On other architectures they are those of the auxiliary vector, or without one those in
// /proc/cpuinfo, under the same names.
func Flags(facts host.CPUFacts, info Info) []string {
	flags := slices.Clone(facts.Flags)
	for level := 1; level <= facts.X64Level; level++ {
		flags = append(flags, "X86_64_V"+strconv.Itoa(level))
	}
	if caps, ok := architectures[facts.Arch]; ok {
		flags = append(flags, caps.vector[0].names(facts.HWCAP)...)
		flags = append(flags, caps.vector[1].names(facts.HWCAP2)...)
		if len(flags) == 0 {
			flags = append(flags, caps.listed(info)...)
		}
	}
	slices.Sort(flags)
	return slices.Compact(flags)
}

// Capabilities returns the sorted names of the capabilities of an architecture other than x86.
func Capabilities(arch string) []string {
	var all []string
	for _, list := range architectures[arch].vector {
		all = append(all, list.names(^uint64(0))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Architectures returns the architectures that Capabilities knows, sorted, in Go's terms.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// AllCapabilities returns the sorted names of the capabilities that a processor of any architecture may have.
var AllCapabilities = sync.OnceValue(func() []string {
	all := append(host.CPUFlags(), "X86_64_V1", "X86_64_V2", "X86_64_V3", "X86_64_V4", "AVX10_VERSION")
	for _, arch := range Architectures() {
		all = append(all, Capabilities(arch)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
})

// IsCapability reports whether a processor of any architecture may have a capability of that name.
func IsCapability(name string) bool {
	_, found := slices.BinarySearch(AllCapabilities(), name)
	return found
}

// capabilities describes how the kernel reports the capabilities of processors.
type capabilities struct {
	// vector are AT_HWCAP and AT_HWCAP2 of the auxiliary vector.
	vector [2]capabilityNames
	// words returns the capabilities that /proc/cpuinfo lists, in the kernel's spelling.
	words func(Info) []string
}

// listed returns the names of the capabilities in /proc/cpuinfo.
func (c capabilities) listed(info Info) []string {
	var out []string
	for _, word := range c.words(info) {
		name := strings.ToUpper(word)
		for _, list := range c.vector {
			if i := slices.IndexFunc(list, func(n capability) bool { return n.kernel == word }); i >= 0 {
				name = list[i].name
			}
		}
		out = append(out, name)
	}
	return out
}

// capability is a bit of the auxiliary vector: the name that is published, and that in /proc/cpuinfo. An empty name is an unnamed bit.
type capability struct{ name, kernel string }

// capabilityNames names the bits of an entry of the auxiliary vector, lowest first.
type capabilityNames []capability

func (n capabilityNames) names(set uint64) []string {
	var out []string
	for ; set != 0; set &= set - 1 {
		if bit := bits.TrailingZeros64(set); bit < len(n) && n[bit].name != "" {
			out = append(out, n[bit].name)
		}
	}
	return out
}

// list parses the names of the bits, lowest first: "-" is an unnamed bit, and NAME=KERNEL one whose name in /proc/cpuinfo is not the
// same in lower case.
func list(names string) capabilityNames {
	var out capabilityNames
	for _, word := range strings.Fields(names) {
		name, kernel, other := strings.Cut(word, "=")
		if !other {
			kernel = strings.ToLower(name)
		}
		if name == "-" {
			name, kernel = "", ""
		}
		out = append(out, capability{name, kernel})
	}
	return out
}

// features returns the words of the line "Features" or "features".
func features(info Info) []string { return info.words("Features", "features") }

// architectures has the capabilities by architecture. The names are NFD's; bits that NFD does not name have the name that the kernel
// prints in /proc/cpuinfo, in upper case, which is how NFD names them when it follows the kernel.
var architectures = map[string]capabilities{
	// arch/arm64/include/uapi/asm/hwcap.h and hwcap_str in arch/arm64/kernel/cpuinfo.c; their meaning is in
	// Documentation/arch/arm64/elf_hwcaps.rst.
	"arm64": {words: features, vector: [2]capabilityNames{
		list(`FP ASIMD EVTSTRM AES PMULL SHA1 SHA2 CRC32 ATOMICS FPHP ASIMDHP CPUID ASIMDRDM JSCVT FCMA LRCPC
			DCPOP SHA3 SM3 SM4 ASIMDDP SHA512 SVE ASIMDFHM DIT USCAT ILRCPC FLAGM SSBS SB PACA PACG
			GCS CMPBR FPRCVT F8MM8 F8MM4 SVEF16MM SVEELTPERM SVEAES2 SVEBFSCALE SVE2P2 SME2P2 SMESBITPERM SMEAES
			SMESFEXPA SMESTMOP SMESMOP4`),
		list(`DCPODP SVE2 SVEAES SVEPMULL SVEBITPERM SVESHA3 SVESM4 FLAGM2 FRINT SVEI8MM SVEF32MM SVEF64MM SVEBF16 I8MM BF16
			DGH RNG BTI MTE ECV AFP RPRES MTE3 SME SMEI16I64 SMEF64F64 SMEI8I32 SMEF16F32 SMEB16F32 SMEF32F32 SMEFA64
			WFXT EBF16 SVEEBF16 CSSC RPRFM SVE2P1 SME2 SME2P1 SMEI16I32 SMEBI32I32 SMEB16B16 SMEF16F16 MOPS HBC
			SVEB16B16 LRCPC3 LSE128 FPMR LUT FAMINMAX F8CVT F8FMA F8DP4 F8DP2 F8E4M3 F8E5M2 SMELUTV2 SMEF8F16 SMEF8F32
			SMESF8FMA SMESF8DP4 SMESF8DP2 POE`),
	}},
	// arch/arm/include/uapi/asm/hwcap.h, and hwcap_str in arch/arm/kernel/setup.c
	"arm": {words: features, vector: [2]capabilityNames{
		list(`SWP HALF THUMB 26BIT FASTMUL=fastmult FPA VFP EDSP JAVA IWMMXT CRUNCH THUMBEE NEON VFPv3 VFPv3D16 TLS VFPv4 IDIVA
			IDIVT VFPD32 LPAE EVTSTRM FPHP ASIMDHP ASIMDDP ASIMDFHM ASIMDBF16 I8MM`),
		list(`AES PMULL SHA1 SHA2 CRC32 SB SSBS`),
	}},
	// arch/powerpc/include/uapi/asm/cputable.h; Documentation/arch/powerpc/elf_hwcaps.rst. /proc/cpuinfo has none of them.
	"ppc64le": {words: func(Info) []string { return nil }, vector: [2]capabilityNames{
		list(`PPCLE TRUE_LE - - - - ARCHPMU VSX ARCH_2_06 POWER6X DFP PA6T ARCH_2_05 IC_SNOOP SMT
			BOOKE CELLBE POWER5+ POWER5 POWER4 NOTB EFPDOUBLE EFPFLOAT SPE UCACHE 4xxMAC MMU FPU ALTIVEC PPC601 PPC64 PPC32`),
		list(`- - - - - - - - - - - - - - - - - MMA ARCH_3_1 HTM-NO-SUSPEND SCV DARN IEEE128 ARCH_3_00 HTM-NOSC VCRYPTO
			TAR ISEL EBB DSCR HTM ARCH_2_07`),
	}},
	// arch/s390/include/asm/elf.h; Documentation/arch/s390 and show_cpu_summary in arch/s390/kernel/processor.c
	"s390x": {words: features, vector: [2]capabilityNames{
		list(`ESAN3 ZARCH STFLE MSA LDISP EIMM DFP EDAT ETF3EH HIGHGPRS TE VX VXD VXE GS VXE2 VXP SORT DFLT VXP2 NNPA
			PCIMIO SIE`),
	}},
	// arch/loongarch/include/uapi/asm/hwcap.h, and show_cpuinfo in arch/loongarch/kernel/proc.c. NFD knows none of them.
	"loong64": {words: features, vector: [2]capabilityNames{
		list(`CPUCFG LAM UAL FPU LSX LASX CRC32 COMPLEX CRYPTO LVZ LBT_X86 LBT_ARM LBT_MIPS PTW LSPW SCQ`),
	}},
	// The vector has a bit for each letter of the alphabet, but nothing for the extensions with longer names, which are in
	// /proc/cpuinfo alone. NFD knows none of them.
	"riscv64": {words: isa},
}

// isa returns the extensions in the line "isa" of RISC-V, such as "rv64imafdc_zicsr_zba": letters, and after the first underscore
// names, see Documentation/arch/riscv/uabi.rst. The letter g means imafd.
func isa(info Info) []string {
	words := strings.FieldsFunc(strings.ToLower(info["isa"]), func(r rune) bool { return r == '_' || r == ' ' })
	if len(words) == 0 {
		return nil
	}
	letters := strings.TrimPrefix(strings.TrimPrefix(words[0], "rv32"), "rv64")
	// Some older kernels print long names without an underscore before the first: rv64imafdcsu, rv64imafdczicsr.
	if i := strings.IndexAny(letters, "szx"); i >= 0 {
		if len(letters)-i > 2 {
			words = append(words, letters[i:])
		}
		letters = letters[:i]
	}
	out := strings.Split(strings.ReplaceAll(letters, "g", "imafd"), "")
	return append(out, words[1:]...)
}
