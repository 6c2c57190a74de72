package cpu

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

// Flags returns the sorted names of a processor's capabilities. On x86 they are those of the CPUID instruction and one for each
// supported microarchitecture level. On other architectures they are those of the auxiliary vector, or without one those in
// /proc/cpuinfo, with the kernel's names in upper case.
func Flags(facts host.CPUFacts, info Info) []string {
	flags := slices.Clone(facts.Flags)
	for level := 1; level <= facts.X64Level; level++ {
		flags = append(flags, "X86_64_V"+strconv.Itoa(level))
	}
	if caps, ok := capabilities[facts.Arch]; ok {
		flags = append(flags, caps[0].names(facts.HWCAP)...)
		flags = append(flags, caps[1].names(facts.HWCAP2)...)
		if len(flags) == 0 {
			flags = strings.Fields(strings.ToUpper(strings.Join(info.words("Features", "features"), " ")))
		}
	}
	slices.Sort(flags)
	return slices.Compact(flags)
}

// capabilityNames names the bits of an entry of the auxiliary vector, lowest first; an empty name is an unnamed bit.
type capabilityNames []string

func (n capabilityNames) names(set uint64) []string {
	var out []string
	for ; set != 0; set &= set - 1 {
		if bit := bits.TrailingZeros64(set); bit < len(n) && n[bit] != "" {
			out = append(out, n[bit])
		}
	}
	return out
}

func list(names string) capabilityNames {
	out := strings.Fields(names)
	for i, n := range out {
		if n == "-" {
			out[i] = ""
		}
	}
	return out
}

// capabilities are AT_HWCAP and AT_HWCAP2 by architecture, in the order of the bits; "-" is an unnamed bit.
var capabilities = map[string][2]capabilityNames{
	// arch/arm64/include/uapi/asm/hwcap.h; their meaning is in Documentation/arch/arm64/elf_hwcaps.rst.
	"arm64": {
		list(`FP ASIMD EVTSTRM AES PMULL SHA1 SHA2 CRC32 ATOMICS FPHP ASIMDHP CPUID ASIMDRDM JSCVT FCMA LRCPC
			DCPOP SHA3 SM3 SM4 ASIMDDP SHA512 SVE ASIMDFHM DIT USCAT ILRCPC FLAGM SSBS SB PACA PACG
			GCS CMPBR FPRCVT F8MM8 F8MM4 SVE_F16MM SVE_ELTPERM SVE_AES2 SVE_BFSCALE SVE2P2 SME2P2 SME_SBITPERM SME_AES
			SME_SFEXPA SME_STMOP SME_SMOP4`),
		list(`DCPODP SVE2 SVEAES SVEPMULL SVEBITPERM SVESHA3 SVESM4 FLAGM2 FRINT SVEI8MM SVEF32MM SVEF64MM SVEBF16 I8MM BF16
			DGH RNG BTI MTE ECV AFP RPRES MTE3 SME SME_I16I64 SME_F64F64 SME_I8I32 SME_F16F32 SME_B16F32 SME_F32F32 SME_FA64
			WFXT EBF16 SVE_EBF16 CSSC RPRFM SVE2P1 SME2 SME2P1 SME_I16I32 SME_BI32I32 SME_B16B16 SME_F16F16 MOPS HBC
			SVE_B16B16 LRCPC3 LSE128 FPMR LUT FAMINMAX F8CVT F8FMA F8DP4 F8DP2 F8E4M3 F8E5M2 SME_LUTV2 SME_F8F16 SME_F8F32
			SME_SF8FMA SME_SF8DP4 SME_SF8DP2 POE`),
	},
	// arch/arm/include/uapi/asm/hwcap.h
	"arm": {
		list(`SWP HALF THUMB 26BIT FAST_MULT FPA VFP EDSP JAVA IWMMXT CRUNCH THUMBEE NEON VFPV3 VFPV3D16 TLS VFPV4 IDIVA
			IDIVT VFPD32 LPAE EVTSTRM FPHP ASIMDHP ASIMDDP ASIMDFHM ASIMDBF16 I8MM`),
		list(`AES PMULL SHA1 SHA2 CRC32 SB SSBS`),
	},
	// arch/powerpc/include/uapi/asm/cputable.h; Documentation/arch/powerpc/elf_hwcaps.rst
	"ppc64le": {
		list(`PPC_LE TRUE_LE - - - - PSERIES_PERFMON_COMPAT VSX ARCH_2_06 POWER6_EXT DFP PA6T ARCH_2_05 ICACHE_SNOOP SMT
			BOOKE CELLBE POWER5_PLUS POWER5 POWER4 NOTB EFPDOUBLE EFPSINGLE SPE UCACHE 4XXMAC MMU FPU ALTIVEC PPC601 PPC64 PPC32`),
		list(`- - - - - - - - - - - - - - - - - MMA ARCH_3_1 HTM_NO_SUSPEND SCV DARN IEEE128 ARCH_3_00 HTM_NOSC VEC_CRYPTO
			TAR ISEL EBB DSCR HTM ARCH_2_07`),
	},
	// arch/s390/include/asm/elf.h; Documentation/arch/s390 and the features of /proc/cpuinfo
	"s390x": {
		list(`ESAN3 ZARCH STFLE MSA LDISP EIMM DFP EDAT ETF3EH HIGHGPRS TE VX VXD VXE GS VXE2 VXP SORT DFLT VXP2 NNPA
			PCIMIO SIE`),
		nil,
	},
}
