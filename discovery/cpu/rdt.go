package cpu

import (
	"errors"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// rdtFlags maps the kernel's resource control flags (Documentation/filesystems/resctrl.rst, table of flags) to names in the
// feature. The kernel lists enabled flags only, not those disabled on the command line (rdt=!mba).
var rdtFlags = []struct{ flag, name string }{
	{"cqm", "RDTMON"},
	{"cqm_occup_llc", "RDTCMT"},
	{"cqm_mbm_total", "RDTMBM"},
	{"cqm_mbm_local", "RDTMBM"},
	{"cat_l3", "RDTL3CA"},
	{"cat_l2", "RDTL2CA"},
	{"mba", "RDTMBA"},
}

// rdt publishes Intel RDT, and AMD's equivalent under the same names. The number of classes of service depends on the kernel and is
// only known while resctrl is mounted.
func rdt(r *discovery.Result, h host.Host, facts host.CPUFacts, info Info) {
	if x86 := facts.Arch == "amd64" || facts.Arch == "386"; facts.Arch == "" || x86 && info["flags"] == "" {
		if info != nil && x86 {
			r.Problem(errors.New("/proc/cpuinfo has no flags"))
		}
		return
	}
	attributes := map[string]string{}
	flags := map[string]bool{}
	for _, f := range info.words("flags") {
		flags[f] = true
	}
	for _, f := range rdtFlags {
		if flags[f.flag] {
			attributes[f.name] = "true"
		}
	}
	// With code and data prioritization, cache allocation has two resources with the same number of classes.
	for _, resource := range []string{"L3", "L3CODE"} {
		if attributes["RDTL3CA"] == "" {
			break
		}
		file := "sys/fs/resctrl/info/" + resource + "/num_closids"
		text, err := h.ReadAttribute(file)
		if err != nil {
			r.Problem(host.Present(err))
			continue
		}
		if _, err := strconv.ParseUint(text, 10, 32); err != nil {
			r.Problem(discovery.NotA("number", file, text))
			continue
		}
		attributes["RDTL3CA_NUM_CLOSID"] = text
		break
	}
	r.Attributes(RDTFeature, attributes)
}
