package cpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// maxCPUs is the maximum number of CPUs for which a Linux kernel can be built (NR_CPUS).
const maxCPUs = 8192

// topology publishes threads, cores and sockets that are online, see Documentation/admin-guide/cputopology.rst.
func topology(r *discovery.Result, h host.Host) {
	attributes := map[string]string{}
	online, err := cpuList(h, devicesDir+"/online")
	if err != nil {
		r.Problem(host.Present(err))
		return
	}
	attributes["cpu_count"] = strconv.Itoa(len(online))
	cores, threads, err := groups(h, online, "/topology/thread_siblings_list")
	r.Problem(err)
	if cores > 0 {
		attributes["core_count"] = strconv.Itoa(cores)
	}
	if err == nil {
		attributes["hardware_multithreading"] = strconv.FormatBool(multithreading(h, threads))
		r.Labels["cpu-hardware_multithreading"] = attributes["hardware_multithreading"]
	}
	n, err := sockets(h, online)
	r.Problem(err)
	if n > 0 {
		attributes["socket_count"] = strconv.Itoa(n)
	}
	r.Attributes(TopologyFeature, attributes)

	// A hybrid processor has a performance monitor for each kind of core.
	for _, kind := range []string{"cpu_atom", "cpu_core"} {
		ok, err := h.Exists("sys/devices/" + kind)
		r.Problem(err)
		if ok {
			r.Labels["cpu-"+kind] = "true"
		}
	}
}

// multithreading reports whether any core runs more than one thread. Where the kernel can disable threads, it reports this itself;
// otherwise the maximum number of threads per core decides.
func multithreading(h host.Host, threads int) bool {
	if active, err := h.ReadAttribute(devicesDir + "/smt/active"); err == nil {
		return active == "1"
	}
	return threads > 1
}

// sockets counts the packages that have CPUs online. It reads the list of CPUs once per package, not once per CPU.
func sockets(h host.Host, online []int) (int, error) {
	seen := map[int]bool{}
	ids := map[string]bool{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		id, err := h.ReadAttribute(topologyFile(cpu, "physical_package_id"))
		if err != nil {
			if host.Present(err) == nil {
				continue
			}
			return 0, err
		}
		ids[id] = true
		siblings, err := cpuList(h, topologyFile(cpu, "package_cpus_list"))
		if err != nil { // before Linux 5.3
			siblings, _ = cpuList(h, topologyFile(cpu, "core_siblings_list"))
		}
		for _, s := range siblings {
			seen[s] = true
		}
	}
	return len(ids), nil
}

func topologyFile(cpu int, name string) string {
	return cpuDir(cpu) + "/topology/" + name
}

// groups counts the sets, such as cores, into which a file of each CPU divides the CPUs online, and returns the size of the largest
// set. It reads one CPU of each set. A CPU without the file is in no set.
func groups(h host.Host, online []int, file string) (count, largest int, err error) {
	seen := map[int]bool{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		list, err := cpuList(h, cpuDir(cpu)+file)
		if host.Present(err) != nil {
			return 0, 0, err
		}
		if len(list) == 0 {
			continue
		}
		count++
		largest = max(largest, len(list))
		for _, c := range list {
			seen[c] = true
		}
	}
	return count, largest, nil
}

func cpuDir(cpu int) string { return devicesDir + "/cpu" + strconv.Itoa(cpu) }

func cpuList(h host.Host, file string) ([]int, error) {
	data, err := h.ReadPrefix(file, host.MaxFileSize)
	if err != nil {
		return nil, err
	}
	list, err := ParseCPUList(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", file, err)
	}
	return list, nil
}

// ParseCPUList parses a list such as "0-3,8,10-11", see bitmap_parselist in lib/bitmap-str.c. An empty list contains no CPUs.
func ParseCPUList(s string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		if part == "" && s == "" {
			return nil, nil
		}
		low, high, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(low, 10, 32)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(high, 10, 32)
		}
		if err != nil || b < a {
			return nil, fmt.Errorf("%.40q is not a list of CPUs", s)
		}
		if b >= maxCPUs || len(list)+int(b-a) >= maxCPUs {
			return nil, fmt.Errorf("%.40q names more than %d CPUs", s, maxCPUs)
		}
		for cpu := a; cpu <= b; cpu++ {
			list = append(list, int(cpu))
		}
	}
	return list, nil
}
