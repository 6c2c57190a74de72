package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// maxCPUs is the maximum number of CPUs for which a Linux kernel can be built (NR_CPUS).
const maxCPUs = 8192

// topology publishes threads, cores and sockets that are online, see Documentation/admin-guide/cputopology.rst. A count is only
// published if every CPU says where it belongs.
func topology(r *discovery.Result, h host.Host) {
	attributes := map[string]string{}
	online, err := onlineCPUs(h)
	if err != nil {
		r.Problem(err)
		return
	}
	attributes["cpu_count"] = strconv.Itoa(len(online))
	cores, threads, err := groups(h, online, "/topology/thread_siblings_list")
	r.Problem(err)
	if cores > 0 {
		attributes["core_count"] = strconv.Itoa(cores)
	}
	smt, err := multithreading(h, threads)
	r.Problem(err)
	if smt != "" {
		attributes["hardware_multithreading"] = smt
		r.Labels["cpu-hardware_multithreading"] = smt
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

// onlineCPUs returns the numbers of the CPUs that are online, at least one.
func onlineCPUs(h host.Host) ([]int, error) {
	return cpuList(h, devicesDir+"/online")
}

// multithreading reports whether any core runs more than one thread: "true", "false", or "" if that is not known. Where the kernel
// can disable threads, it reports this itself; elsewhere smt/active is 0 whatever the processor does, and the maximum number of
// threads per core decides.
func multithreading(h host.Host, threads int) (string, error) {
	const file = devicesDir + "/smt/active"
	active, err := h.ReadAttribute(file)
	if host.Present(err) != nil {
		return "", err
	}
	if err == nil {
		control, err := h.ReadAttribute(devicesDir + "/smt/control")
		if err != nil || (control != "notimplemented" && control != "notsupported") {
			if active != "0" && active != "1" {
				return "", discovery.NotA("switch, 0 or 1", file, active)
			}
			return strconv.FormatBool(active == "1"), host.Present(err)
		}
	}
	if threads == 0 {
		return "", nil
	}
	return strconv.FormatBool(threads > 1), nil
}

// sockets counts the packages that have CPUs online. It returns 0 if a CPU does not say to which it belongs: without firmware that
// describes packages, the number of every CPU's package is -1. With the list of a package's CPUs it reads one of them, without it all:
// a copy of a machine may have an empty one, because Linux 5.15 reports its size as 0.
func sockets(h host.Host, online []int) (int, error) {
	seen := map[int]bool{}
	ids := map[uint64]bool{}
	var unread error
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		file := topologyFile(cpu, "physical_package_id")
		text, err := h.ReadAttribute(file)
		if err != nil || text == "-1" {
			return 0, errors.Join(host.Present(err), unread)
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, discovery.NotA("number", file, text)
		}
		ids[id] = true
		siblings, err := cpuList(h, topologyFile(cpu, "package_cpus_list"))
		if errors.Is(err, fs.ErrNotExist) { // before Linux 5.3
			siblings, err = cpuList(h, topologyFile(cpu, "core_siblings_list"))
		}
		unread = cmp.Or(unread, host.Present(err))
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
// set. It reads one CPU of each set. It returns 0 if a CPU does not say to which it belongs.
func groups(h host.Host, online []int, file string) (count, largest int, err error) {
	seen := map[int]bool{}
	for _, cpu := range online {
		if seen[cpu] {
			continue
		}
		list, err := cpuList(h, cpuDir(cpu)+file)
		if err == nil && !slices.Contains(list, cpu) {
			err = fmt.Errorf("/%s%s does not name CPU %d itself", cpuDir(cpu), file, cpu)
		}
		if err != nil {
			return 0, 0, host.Present(err)
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

// cpuList reads a list of at least one CPU.
func cpuList(h host.Host, file string) ([]int, error) {
	data, err := h.ReadPrefix(file, host.MaxFileSize)
	if err != nil {
		return nil, err
	}
	list, err := ParseCPUList(host.CleanTo(data, host.MaxFileSize))
	if err == nil && len(list) == 0 {
		err = errors.New("names no CPU")
	}
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
