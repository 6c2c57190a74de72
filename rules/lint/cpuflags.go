package lint

import "strings"

// cpuFlags are the names of CPU features in github.com/klauspost/cpuid/v2 and of the hardware capabilities of other architectures, to
// find typos. Names that are not similar to any of these cause no warning, because new processors add names every year.
var cpuFlags = []string{
	"26BIT", "4xxMAC", "ADX", "AES", "AESARM", "AESNI", "AFP", "ALTIVEC", "AMD3DNOW", "AMD3DNOWEXT", "AMXBF16",
	"AMXCOMPLEX", "AMXFP16", "AMXFP8", "AMXINT8", "AMXTF32", "AMXTILE", "AMXTRANSPOSE", "APX_F", "ARCHPMU", "ARCH_2_05",
	"ARCH_2_06", "ARCH_2_07", "ARCH_3_00", "ARCH_3_1", "ARMCPUID", "ASIMD", "ASIMDBF16", "ASIMDDP", "ASIMDFHM", "ASIMDHP",
	"ASIMDRDM", "ATOMICS", "AVX", "AVX10", "AVX10_128", "AVX10_256", "AVX10_512", "AVX2", "AVX512BF16", "AVX512BITALG",
	"AVX512BW", "AVX512CD", "AVX512DQ", "AVX512ER", "AVX512F", "AVX512FP16", "AVX512IFMA", "AVX512PF", "AVX512VBMI",
	"AVX512VBMI2", "AVX512VL", "AVX512VNNI", "AVX512VP2INTERSECT", "AVX512VPOPCNTDQ", "AVXIFMA", "AVXNECONVERT", "AVXSLOW",
	"AVXVNNI", "AVXVNNIINT16", "AVXVNNIINT8", "BF16", "BHI_CTRL", "BMI1", "BMI2", "BOOKE", "BTI", "CELLBE", "CETIBT",
	"CETSS", "CLDEMOTE", "CLMUL", "CLZERO", "CMOV", "CMPBR", "CMPCCXADD", "CMPSB_SCADBS_SHORT", "CMPXCHG8", "COMPLEX",
	"CPBOOST", "CPPC", "CPUCFG", "CPUID", "CRC32", "CRUNCH", "CRYPTO", "CSSC", "CX16", "DARN", "DCPODP", "DCPOP", "DFLT",
	"DFP", "DGH", "DIT", "DSCR", "EBB", "EBF16", "ECV", "EDAT", "EDSP", "EFER_LMSLE_UNS", "EFPDOUBLE", "EFPFLOAT", "EIMM",
	"ENQCMD", "ERMS", "ESAN3", "ETF3EH", "EVTSTRM", "F16C", "F8CVT", "F8DP2", "F8DP4", "F8E4M3", "F8E5M2", "F8FMA", "F8MM4",
	"F8MM8", "FAMINMAX", "FASTMUL", "FCMA", "FHM", "FLAGM", "FLAGM2", "FLUSH_L1D", "FMA3", "FMA4", "FP", "FP128", "FP256",
	"FPA", "FPHP", "FPMR", "FPRCVT", "FPU", "FRINT", "FSRM", "FXSR", "FXSROPT", "GCS", "GFNI", "GPA", "GS", "HALF", "HBC",
	"HIGHGPRS", "HLE", "HRESET", "HTM", "HTM-NO-SUSPEND", "HTM-NOSC", "HTT", "HWA", "HYBRID_CPU", "HYPERVISOR", "I8MM",
	"IA32_ARCH_CAP", "IA32_CORE_CAP", "IBPB", "IBPB_BRTYPE", "IBRS", "IBRS_PREFERRED", "IBRS_PROVIDES_SMP", "IBS",
	"IBSBRNTRGT", "IBSFETCHSAM", "IBSFFV", "IBSOPCNT", "IBSOPCNTEXT", "IBSOPSAM", "IBSRDWROPCNT", "IBSRIPINVALIDCHK",
	"IBS_FETCH_CTLX", "IBS_OPDATA4", "IBS_OPFUSE", "IBS_PREVENTHOST", "IBS_ZEN4", "IC_SNOOP", "IDIVA", "IDIVT",
	"IDPRED_CTRL", "IEEE128", "ILRCPC", "INT_WBINVD", "INVLPGB", "ISEL", "IWMMXT", "JAVA", "JSCVT", "KEYLOCKER",
	"KEYLOCKERW", "LAHF", "LAM", "LASX", "LBRVIRT", "LBT_ARM", "LBT_MIPS", "LBT_X86", "LDISP", "LPAE", "LRCPC", "LRCPC3",
	"LSE128", "LSPW", "LSX", "LUT", "LVZ", "LZCNT", "MCAOVERFLOW", "MCDT_NO", "MCOMMIT", "MD_CLEAR", "MMA", "MMU", "MMX",
	"MMXEXT", "MOPS", "MOVBE", "MOVDIR64B", "MOVDIRI", "MOVSB_ZL", "MOVU", "MPX", "MSA", "MSRIRC", "MSRLIST",
	"MSR_PAGEFLUSH", "MTE", "MTE3", "NEON", "NNPA", "NOTB", "NRIPS", "NX", "OSXSAVE", "PA6T", "PACA", "PACG", "PCIMIO",
	"PCONFIG", "PMULL", "PMU_FIXEDCOUNTER_CYCLES", "PMU_FIXEDCOUNTER_INSTRUCTIONS", "PMU_FIXEDCOUNTER_REFCYCLES",
	"PMU_FIXEDCOUNTER_TOPDOWN_SLOTS", "POE", "POPCNT", "POWER4", "POWER5", "POWER5+", "POWER6X", "PPC32", "PPC601", "PPC64",
	"PPCLE", "PPIN", "PREFETCHI", "PSFD", "PTW", "RDPRU", "RDRAND", "RDSEED", "RDTSCP", "RNDR", "RNG", "RPRES", "RPRFM",
	"RRSBA_CTRL", "RTM", "RTM_ALWAYS_ABORT", "SB", "SBPB", "SCQ", "SCV", "SERIALIZE", "SEV", "SEV_64BIT", "SEV_ALTERNATIVE",
	"SEV_DEBUGSWAP", "SEV_ES", "SEV_RESTRICTED", "SEV_SNP", "SGX", "SGXLC", "SGXPQC", "SHA", "SHA1", "SHA2", "SHA3",
	"SHA512", "SIE", "SM3", "SM3_X86", "SM4", "SM4_X86", "SME", "SME2", "SME2P1", "SME2P2", "SMEAES", "SMEB16B16",
	"SMEB16F32", "SMEBI32I32", "SMEF16F16", "SMEF16F32", "SMEF32F32", "SMEF64F64", "SMEF8F16", "SMEF8F32", "SMEFA64",
	"SMEI16I32", "SMEI16I64", "SMEI8I32", "SMELUTV2", "SMESBITPERM", "SMESF8DP2", "SMESF8DP4", "SMESF8FMA", "SMESFEXPA",
	"SMESMOP4", "SMESTMOP", "SME_COHERENT", "SMT", "SORT", "SPE", "SPEC_CTRL_SSBD", "SRBDS_CTRL", "SRSO_MSR_FIX", "SRSO_NO",
	"SRSO_USER_KERNEL_NO", "SSBS", "SSE", "SSE2", "SSE3", "SSE4", "SSE42", "SSE4A", "SSSE3", "STFLE", "STIBP",
	"STIBP_ALWAYSON", "STOSB_SHORT", "SUCCOR", "SVE", "SVE2", "SVE2P1", "SVE2P2", "SVEAES", "SVEAES2", "SVEB16B16",
	"SVEBF16", "SVEBFSCALE", "SVEBITPERM", "SVEEBF16", "SVEELTPERM", "SVEF16MM", "SVEF32MM", "SVEF64MM", "SVEI8MM",
	"SVEPMULL", "SVESHA3", "SVESM4", "SVM", "SVMDA", "SVMFBASID", "SVML", "SVMNP", "SVMPF", "SVMPFT", "SWP", "SYSCALL",
	"SYSEE", "TAR", "TBM", "TDX_GUEST", "TE", "THUMB", "THUMBEE", "TLB", "TLB_FLUSH_NESTED", "TLS", "TME", "TOPEXT",
	"TRUE_LE", "TS", "TSA_L1_NO", "TSA_SQ_NO", "TSA_VERW_CLEAR", "TSCRATEMSR", "TSXLDTRK", "UAL", "UCACHE", "USCAT", "VAES",
	"VCRYPTO", "VFP", "VFPD32", "VFPv3", "VFPv3D16", "VFPv4", "VMCBCLEAN", "VMPL", "VMSA_REGPROT", "VMX", "VPCLMULQDQ",
	"VSX", "VTE", "VX", "VXD", "VXE", "VXE2", "VXP", "VXP2", "WAITPKG", "WBNOINVD", "WFXT", "WRMSRNS", "X86_64_V1",
	"X86_64_V2", "X86_64_V3", "X86_64_V4", "X87", "XGETBV1", "XOP", "XSAVE", "XSAVEC", "XSAVEOPT", "XSAVES", "ZARCH",
}

// maxFamily is the maximum number of flags in a message.
const maxFamily = 4

// familyOf returns the first flags that begin with a name, for one such as AVX-512 that is the name of a family, or "".
func familyOf(name string) string {
	short := squash(name)
	if len(short) < minFamily {
		return ""
	}
	var family []string
	for _, flag := range cpuFlags {
		// AVX10_2 is not AVX10_256.
		if rest, ok := strings.CutPrefix(squash(flag), short); ok && strings.Trim(rest[:min(1, len(rest))], "0123456789") != "" {
			family = append(family, flag)
		}
	}
	if len(family) < 2 {
		return "" // a name that nearest suggests, or a new one
	}
	if len(family) > maxFamily {
		family = append(family[:maxFamily], "…")
	}
	return strings.Join(family, ", ")
}

// minFamily is the minimum length of the name of a family: many flags begin with the same three letters.
const minFamily = 5
