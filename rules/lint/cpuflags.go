package lint

// cpuFlags are the names of processor capabilities that rules ask for most, to tell typos by. The list need not be complete:
// names that are not near any of these are left alone.
var cpuFlags = []string{
	"ADX", "AESNI", "AMXBF16", "AMXFP16", "AMXINT8", "AMXTILE", "ASIMD", "ATOMICS", "AVX", "AVX2", "AVX512BF16", "AVX512BITALG",
	"AVX512BW", "AVX512CD", "AVX512DQ", "AVX512F", "AVX512FP16", "AVX512IFMA", "AVX512VBMI", "AVX512VBMI2", "AVX512VL",
	"AVX512VNNI", "AVX512VP2INTERSECT", "AVX512VPOPCNTDQ", "AVXVNNI", "CLDEMOTE", "CRC32", "FMA3", "FMA4", "GFNI", "HLE", "HYPERVISOR",
	"IBPB", "IBS", "LAHF", "MOVBE", "MOVDIR64B", "MOVDIRI", "MPX", "OSXSAVE", "RTM", "SCE", "SERIALIZE", "SHA", "SHA1", "SHA2",
	"SHA3", "SHA512", "SSE4A", "STIBP", "SVE", "SVE2", "SYSCALL", "VAES", "VMX", "VPCLMULQDQ", "WAITPKG", "WBNOINVD", "X86_64_V1",
	"X86_64_V2", "X86_64_V3", "X86_64_V4", "XSAVE", "XSAVEOPT",
}
