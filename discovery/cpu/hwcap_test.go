package cpu_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/discovery/host"
)

// nfdNames are all names that NFD v0.19 has for capabilities of architectures other than x86, by the bit of AT_HWCAP or AT_HWCAP2.
var nfdNames = map[string][2]map[uint]string{
	"arm": {
		{
			0: "SWP", 1: "HALF", 2: "THUMB", 3: "26BIT", 4: "FASTMUL", 5: "FPA", 6: "VFP", 7: "EDSP", 8: "JAVA", 9: "IWMMXT",
			10: "CRUNCH", 11: "THUMBEE", 12: "NEON", 13: "VFPv3", 14: "VFPv3D16", 15: "TLS", 16: "VFPv4", 17: "IDIVA", 18: "IDIVT",
			19: "VFPD32", 20: "LPAE", 21: "EVTSTRM",
		},
		{0: "AES", 1: "PMULL", 2: "SHA1", 3: "SHA2", 4: "CRC32"},
	},
	"arm64": {
		{
			0: "FP", 1: "ASIMD", 2: "EVTSTRM", 3: "AES", 4: "PMULL", 5: "SHA1", 6: "SHA2", 7: "CRC32", 8: "ATOMICS", 9: "FPHP",
			10: "ASIMDHP", 11: "CPUID", 12: "ASIMDRDM", 13: "JSCVT", 14: "FCMA", 15: "LRCPC", 16: "DCPOP", 17: "SHA3", 18: "SM3",
			19: "SM4", 20: "ASIMDDP", 21: "SHA512", 22: "SVE", 23: "ASIMDFHM", 24: "DIT", 25: "USCAT", 26: "ILRCPC", 27: "FLAGM",
			28: "SSBS", 29: "SB", 30: "PACA", 31: "PACG",
		},
		{
			0: "DCPODP", 1: "SVE2", 2: "SVEAES", 3: "SVEPMULL", 4: "SVEBITPERM", 5: "SVESHA3", 6: "SVESM4", 7: "FLAGM2", 8: "FRINT",
			9: "SVEI8MM", 10: "SVEF32MM", 11: "SVEF64MM", 12: "SVEBF16", 13: "I8MM", 14: "BF16", 15: "DGH", 16: "RNG", 17: "BTI",
			18: "MTE", 19: "ECV", 20: "AFP", 21: "RPRES", 22: "MTE3", 23: "SME", 24: "SMEI16I64", 25: "SMEF64F64", 26: "SMEI8I32",
			27: "SMEF16F32", 28: "SMEB16F32", 29: "SMEF32F32", 30: "SMEFA64", 31: "WFXT", 32: "EBF16", 33: "SVEEBF16",
		},
	},
	"ppc64le": {
		{
			31: "PPC32", 30: "PPC64", 29: "PPC601", 28: "ALTIVEC", 27: "FPU", 26: "MMU", 25: "4xxMAC", 24: "UCACHE", 23: "SPE",
			22: "EFPFLOAT", 21: "EFPDOUBLE", 20: "NOTB", 19: "POWER4", 18: "POWER5", 17: "POWER5+", 16: "CELLBE", 15: "BOOKE",
			14: "SMT", 13: "IC_SNOOP", 12: "ARCH_2_05", 11: "PA6T", 10: "DFP", 9: "POWER6X", 8: "ARCH_2_06", 7: "VSX", 6: "ARCHPMU",
			1: "TRUE_LE", 0: "PPCLE",
		},
		{
			31: "ARCH_2_07", 30: "HTM", 29: "DSCR", 28: "EBB", 27: "ISEL", 26: "TAR", 25: "VCRYPTO", 24: "HTM-NOSC", 23: "ARCH_3_00",
			22: "IEEE128", 21: "DARN", 20: "SCV", 19: "HTM-NO-SUSPEND", 18: "ARCH_3_1", 17: "MMA",
		},
	},
	"s390x": {
		{
			0: "ESAN3", 1: "ZARCH", 2: "STFLE", 3: "MSA", 4: "LDISP", 5: "EIMM", 6: "DFP", 7: "EDAT", 8: "ETF3EH", 9: "HIGHGPRS",
			10: "TE", 11: "VX", 12: "VXD", 13: "VXE", 14: "GS", 15: "VXE2", 16: "VXP", 17: "SORT", 18: "DFLT", 19: "VXP2",
			20: "NNPA", 21: "PCIMIO", 22: "SIE",
		},
	},
}

// TestCapabilitiesAreNamedAsInNFD compares each bit: labels of a node must not change when Assay replaces NFD.
func TestCapabilitiesAreNamedAsInNFD(t *testing.T) {
	counts := map[string]int{}
	for arch, vector := range nfdNames {
		for entry, bits := range vector {
			for bit := range uint(64) {
				facts := host.CPUFacts{Arch: arch, HWCAP: 1 << bit}
				if entry == 1 {
					facts = host.CPUFacts{Arch: arch, HWCAP2: 1 << bit}
				}
				got := strings.Join(cpu.Flags(facts, nil), " ")
				if want, ok := bits[bit]; ok && got != want {
					t.Errorf("%s: AT_HWCAP%d bit %d is %q, want %q", arch, entry+1, bit, got, want)
				}
			}
			counts[arch] += len(bits)
		}
	}
	if diff := cmp.Diff(map[string]int{"arm": 27, "arm64": 66, "ppc64le": 43, "s390x": 23}, counts); diff != "" {
		t.Errorf("numbers of NFD's names (-want +got):\n%s", diff)
	}
}

// TestBothWaysHaveTheSameNames: a capability has one name, whether it is read from the auxiliary vector or from /proc/cpuinfo. The
// lines are what a kernel prints for a processor with all bits of the vectors.
func TestBothWaysHaveTheSameNames(t *testing.T) {
	for arch, tt := range map[string]struct {
		hwcap, hwcap2 uint64
		key, line     string
	}{
		"arm": {1<<28 - 1, 1<<7 - 1, "Features", `swp half thumb 26bit fastmult fpa vfp edsp java iwmmxt crunch thumbee neon vfpv3
			vfpv3d16 tls vfpv4 idiva idivt vfpd32 lpae evtstrm fphp asimdhp asimddp asimdfhm asimdbf16 i8mm aes pmull sha1 sha2 crc32
			sb ssbs`},
		"arm64": {1<<48 - 1, 1<<64 - 1, "Features", `fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm
			jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg dcpodp sve2 sveaes
			svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres
			mte3 sme smei16i64 smef64f64 smei8i32 smef16f32 smeb16f32 smef32f32 smefa64 wfxt ebf16 sveebf16 cssc rprfm sve2p1 sme2
			sme2p1 smei16i32 smebi32i32 smeb16b16 smef16f16 mops hbc sveb16b16 lrcpc3 lse128 fpmr lut faminmax f8cvt f8fma f8dp4 f8dp2
			f8e4m3 f8e5m2 smelutv2 smef8f16 smef8f32 smesf8fma smesf8dp4 smesf8dp2 poe gcs cmpbr fprcvt f8mm8 f8mm4 svef16mm
			sveeltperm sveaes2 svebfscale sve2p2 sme2p2 smesbitperm smeaes smesfexpa smestmop smesmop4`},
		"s390x": {1<<23 - 1, 0, "features", `esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx vxd vxe gs vxe2 vxp sort
			dflt vxp2 nnpa pcimio sie`},
		"loong64": {1<<15 - 1, 0, "Features", `cpucfg lam ual fpu lsx lasx crc32 complex crypto lvz lbt_x86 lbt_arm lbt_mips ptw lspw`},
	} {
		vector := cpu.Flags(host.CPUFacts{Arch: arch, HWCAP: tt.hwcap, HWCAP2: tt.hwcap2}, nil)
		text := cpu.Flags(host.CPUFacts{Arch: arch}, cpu.Info{tt.key: tt.line})
		if diff := cmp.Diff(vector, text); diff != "" {
			t.Errorf("%s (-auxiliary vector +/proc/cpuinfo):\n%s", arch, diff)
		}
	}
}

func TestExtensionsOfRISCV(t *testing.T) {
	for isa, want := range map[string]string{
		"rv64imafdc":                       "A C D F I M",
		"rv64gc":                           "A C D F I M",
		"rv64imafdcsu":                     "A C D F I M",
		"rv64imafdcvh_zicbom_zicsr_svpbmt": "A C D F H I M SVPBMT V ZICBOM ZICSR",
		"rv64imafdczicsr_zba_xtheadvector": "A C D F I M XTHEADVECTOR ZBA ZICSR",
		"rv32imac_zicsr":                   "A C I M ZICSR",
		"":                                 "",
	} {
		if got := strings.Join(cpu.Flags(host.CPUFacts{Arch: "riscv64"}, cpu.Info{"isa": isa}), " "); got != want {
			t.Errorf("isa %q = %q, want %q", isa, got, want)
		}
	}
}
