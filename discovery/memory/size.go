package memory

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// total returns the memory that the kernel manages, slightly less than is installed, see proc_meminfo(5).
func total(r *discovery.Result, h host.Host) {
	data, err := h.ReadText("proc/meminfo")
	if err != nil {
		r.Problem(err)
		return
	}
	size, ok := ParseMemInfo(data)["MemTotal"]
	if !ok {
		r.Problem(errors.New("/proc/meminfo has no MemTotal"))
		return
	}
	r.Attributes(TotalFeature, sized(size))
}

// sized returns the elements for a size in bytes: small numbers for comparisons in rules, exact ones for extended resources.
func sized(size uint64) map[string]string {
	return map[string]string{"bytes": strconv.FormatUint(size, 10), "mib": strconv.FormatUint(size>>20, 10)}
}

// ParseMemInfo returns the sizes in /proc/meminfo in bytes, or those in the meminfo of a NUMA node, whose lines begin with "Node
// 0". It skips values that are not sizes in kB.
func ParseMemInfo(data []byte) map[string]uint64 {
	sizes := map[string]uint64{}
	for line := range bytes.Lines(data) {
		f := strings.Fields(string(line))
		if len(f) > 2 && f[0] == "Node" {
			f = f[2:]
		}
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 10, 54); err == nil {
			sizes[strings.TrimSuffix(f[0], ":")] = n << 10
		}
	}
	return sizes
}

// numaNodes lists the NUMA nodes with their memory, CPUs and huge pages, see Documentation/ABI/stable/sysfs-devices-node. A node
// without CPUs is memory behind a link, such as CXL; one without memory has only CPUs.
func numaNodes(r *discovery.Result, h host.Host, names []string) {
	nodes := make([]map[string]string, 0, len(names))
	for _, name := range names {
		id, ok := strings.CutPrefix(name, "node")
		if _, err := strconv.ParseUint(id, 10, 16); !ok || err != nil {
			continue
		}
		dir := h.Resolve("sys/bus/node/devices/" + name)
		node := map[string]string{}
		data, err := h.ReadText(dir + "/meminfo")
		if err != nil {
			r.Problem(host.Present(err))
		} else if size, ok := ParseMemInfo(data)["MemTotal"]; ok {
			node = sized(size)
		} else {
			r.Problem(fmt.Errorf("/%s/meminfo has no MemTotal", dir))
		}
		node["id"] = id
		cpus, err := h.ReadAttribute(dir + "/cpulist")
		switch {
		case err != nil:
			r.Problem(host.Present(err))
		case strings.Trim(cpus, "0123456789,-") != "":
			r.Problem(discovery.NotA("list of CPUs", dir+"/cpulist", cpus))
		default:
			node["cpus"] = cpus
		}
		_, err = readHugePages(r, h, dir+"/hugepages", node)
		r.Problem(host.Present(err))
		nodes = append(nodes, node)
	}
	r.Instances(NodeFeature, nodes)
}
