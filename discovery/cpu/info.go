package cpu

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

// infoPrefix is the number of bytes of /proc/cpuinfo that are read: the first processor has at most about 3 KiB, and the whole file
// of a large server is a megabyte, for which the kernel queries the frequency of every CPU on each read.
const infoPrefix = 16 << 10

// Info holds the entries of the first processor in /proc/cpuinfo. The keys differ between architectures; see
// arch/*/kernel/cpu/proc.c and the like.
type Info map[string]string

func readInfo(h host.Host) (Info, error) {
	data, err := h.ReadPrefix("proc/cpuinfo", infoPrefix)
	if err != nil {
		return nil, err
	}
	info := ParseInfo(host.Text(data))
	if len(info) == 0 {
		return nil, errors.New("/proc/cpuinfo describes no processor")
	}
	return info, nil
}

// ParseInfo parses the first processor in /proc/cpuinfo, and what some architectures print before or after the processors because all
// of them share it: kernels before 3.8 list the capabilities of ARM processors there. The first line with a key wins.
func ParseInfo(data []byte) Info {
	info := Info{}
	other := false // within the entries of another processor, which end with an empty line
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // cut off: a flag at its end may be another one
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			other = other && len(bytes.TrimSpace(line)) > 0
			continue
		}
		// "processor 0: version = 00, …" on IBM Z is a separate key that begins like the one of other architectures.
		name := string(bytes.TrimSpace(key))
		if other = other || name == "processor" && info[name] != ""; other {
			continue
		}
		if _, ok := info[name]; !ok && name != "" {
			// The flags of a large processor are longer than the limit for published values.
			info[name] = host.CleanTo(value, infoPrefix)
		}
	}
	return info
}

// words returns the words in the value of the first existing key.
func (i Info) words(keys ...string) []string {
	for _, k := range keys {
		if v, ok := i[k]; ok {
			return strings.Fields(v)
		}
	}
	return nil
}

// first returns the value of the key with the given prefix and the lowest number: a CPU that is offline has none.
func (i Info) first(prefix string) string {
	value, lowest := "", -1
	for k, v := range i {
		digits, ok := strings.CutPrefix(k, prefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && (lowest < 0 || n < lowest) {
			value, lowest = v, n
		}
	}
	return value
}

// modelOf identifies a processor without CPUID.
func modelOf(arch string, info Info) map[string]string {
	m := map[string]string{}
	set := func(attribute, value string) {
		if value != "" {
			m[attribute] = value
		}
	}
	switch arch {
	case "arm64", "arm":
		set("vendor_id", implementers[info["CPU implementer"]])
		// Family and id are the fields of MIDR_EL1 as cpuid returns them: variant and architecture (15: "see the ID registers"),
		// part and revision.
		variant, err1 := strconv.ParseUint(info["CPU variant"], 0, 4)
		part, err2 := strconv.ParseUint(info["CPU part"], 0, 12)
		revision, err3 := strconv.ParseUint(info["CPU revision"], 0, 4)
		if err1 == nil && err2 == nil && err3 == nil {
			set("family", strconv.FormatUint(variant<<4|15, 10))
			set("id", strconv.FormatUint(part<<4|revision, 10))
		}
	case "s390x":
		set("vendor_id", strings.ReplaceAll(info["vendor_id"], "/", "_"))
		// processor 0: version = FF,  identification = 123456,  machine = 3931
		for part := range strings.SplitSeq(info.first("processor "), ",") {
			switch k, v, _ := strings.Cut(part, "="); strings.TrimSpace(k) {
			case "machine":
				set("id", strings.TrimSpace(v))
			case "identification":
				set("family", strings.TrimSpace(v))
			}
		}
	}
	return m
}

// implementers maps the implementer codes of the MIDR_EL1 register, from the Arm Architecture Reference Manual, to the names that
// cpuid uses.
var implementers = map[string]string{
	"0x41": "ARM", "0x42": "Broadcom", "0x43": "Cavium", "0x44": "DEC", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x49": "Infineon",
	"0x4d": "Motorola", "0x4e": "NVIDIA", "0x50": "AMCC", "0x51": "Qualcomm", "0x53": "Samsung", "0x56": "Marvell",
	"0x61": "Apple", "0x69": "Intel", "0x6d": "Microsoft", "0x70": "Phytium", "0xc0": "Ampere",
}
