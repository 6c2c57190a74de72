package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

const (
	nodesDir = "sys/devices/system/node"
	// maxCPU and maxNode are limits on the ids in lists of the kernel, which is configured for at most 8,192 CPUs and 1,024 NUMA nodes.
	maxCPU  = 1<<14 - 1
	maxNode = 1<<11 - 1
	// selfDistance is the distance of a NUMA node to itself (ACPI, System Locality Information Table).
	selfDistance = 10
)

// Machine is what sysfs shows of the NUMA nodes of a machine.
type Machine struct {
	// Nodes are the online NUMA nodes by ascending id. A kernel without NUMA has the node 0.
	Nodes []Node
	// Classes are the CPUs of each class of a hybrid processor as sysfs lists them: cpu_core, cpu_atom, cpu_lowpower.
	Classes map[string]string
}

// Node is a NUMA node.
type Node struct {
	ID int
	// CPUs are the online logical CPUs.
	CPUs map[int64]bool
	// Distances are by id of the other node. Nil: unknown.
	Distances map[int]int64
	// Bytes are the memory and the huge pages of each size: memory, hugepages-2Mi, ... What could not be read is absent.
	Bytes map[string]int64
}

// ReadMachine reads sysfs. It returns an error if the CPUs or the NUMA nodes are unknown: zones without them would be wrong. Memory and
// distances that cannot be read are absent, and unread has an error for each.
//
// See Documentation/ABI/stable/sysfs-devices-node.
func ReadMachine(h host.Host) (m *Machine, unread []error, err error) {
	h = h.Checked()
	online, err := readList(h, nodesDir+"/online", maxNode)
	switch {
	case errors.Is(err, fs.ErrNotExist): // CONFIG_NUMA=n
		n, problems, err := readUniform(h)
		if err != nil {
			return nil, nil, err
		}
		m, unread = &Machine{Nodes: []Node{n}}, problems
	case err != nil:
		return nil, nil, err
	case len(online) == 0:
		return nil, nil, fmt.Errorf("/%s/online lists no NUMA node", nodesDir)
	default:
		m = &Machine{}
		for _, id := range online {
			n, problems, err := readNode(h, int(id), online)
			if err != nil {
				return nil, nil, err
			}
			m.Nodes = append(m.Nodes, n)
			unread = append(unread, problems...)
		}
	}
	if m.Classes, err = readClasses(h); err != nil {
		unread = append(unread, err)
	}
	return m, unread, nil
}

func readNode(h host.Host, id int, online []int64) (Node, []error, error) {
	dir := nodesDir + "/node" + strconv.Itoa(id)
	n := Node{ID: id}
	cpus, err := readList(h, dir+"/cpulist", maxCPU)
	if err != nil {
		return n, nil, err
	}
	n.CPUs = set(cpus)
	var unread []error
	if n.Distances, err = readDistances(h, dir+"/distance", online); err != nil {
		unread = append(unread, err)
	}
	n.Bytes, err = readHugepages(h, dir+"/hugepages")
	if err != nil {
		unread = append(unread, err)
	}
	total, err := readMemory(h, dir+"/meminfo")
	if err != nil {
		return n, append(unread, err), nil
	}
	n.Bytes["memory"] = total
	return n, unread, nil
}

// readUniform returns the only node of a kernel without NUMA.
func readUniform(h host.Host) (Node, []error, error) {
	cpus, err := readList(h, "sys/devices/system/cpu/online", maxCPU)
	if err != nil {
		return Node{}, nil, err
	}
	n := Node{CPUs: set(cpus), Distances: map[int]int64{0: selfDistance}}
	var unread []error
	n.Bytes, err = readHugepages(h, "sys/kernel/mm/hugepages")
	if err != nil {
		unread = append(unread, err)
	}
	total, err := readMemory(h, "proc/meminfo")
	if err != nil {
		return n, append(unread, err), nil
	}
	n.Bytes["memory"] = total
	return n, unread, nil
}

// readDistances reads the distances of a node: one number for each online node, by ascending id.
func readDistances(h host.Host, file string, online []int64) (map[int]int64, error) {
	text, err := h.ReadAttribute(file)
	if err != nil {
		return nil, err
	}
	values := strings.Fields(text)
	if len(values) != len(online) {
		return nil, fmt.Errorf("/%s has %d distances, but %d NUMA nodes are online", file, len(values), len(online))
	}
	out := make(map[int]int64, len(values))
	for i, value := range values {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("/%s: invalid distance %.20q", file, value)
		}
		out[int(online[i])] = n
	}
	return out, nil
}

// readMemory returns MemTotal in bytes. Lines of a node begin with "Node 0 ".
func readMemory(h host.Host, file string) (int64, error) {
	data, err := h.ReadText(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		_, value, found := strings.Cut(line, "MemTotal:")
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 50)
		if err != nil || kib < 0 {
			return 0, fmt.Errorf("/%s: invalid MemTotal %.40q", file, strings.TrimSpace(value))
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("/%s has no MemTotal", file)
}

// readHugepages returns the bytes in huge pages of each size that the kernel supports. The map is never nil.
func readHugepages(h host.Host, dir string) (map[string]int64, error) {
	out := map[string]int64{}
	names, err := h.ReadDir(dir)
	if err != nil {
		return out, host.Present(err)
	}
	var errs []error
	for _, name := range names {
		text, ok := strings.CutPrefix(name, "hugepages-")
		kib, err := strconv.ParseInt(strings.TrimSuffix(text, "kB"), 10, 50)
		if !ok || err != nil || kib <= 0 {
			continue
		}
		file := dir + "/" + name + "/nr_hugepages"
		count, err := h.ReadAttribute(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n < 0 || n > (1<<62)/(kib<<10) {
			errs = append(errs, fmt.Errorf("/%s: invalid number %.40q", file, count))
			continue
		}
		out[hugepages(kib)] = n * kib << 10
	}
	return out, errors.Join(errs...)
}

// hugepages returns the name of the resource of huge pages, with the largest unit that divides their size.
func hugepages(kib int64) string {
	for _, unit := range []struct {
		kib  int64
		name string
	}{{1 << 20, "Gi"}, {1 << 10, "Mi"}} {
		if kib%unit.kib == 0 {
			return fmt.Sprintf("hugepages-%d%s", kib/unit.kib, unit.name)
		}
	}
	return fmt.Sprintf("hugepages-%dKi", kib)
}

// readClasses reads the classes of CPUs, each of which has a device of perf events: /sys/devices/cpu_core, cpu_atom and others.
func readClasses(h host.Host) (map[string]string, error) {
	names, err := h.ReadDir("sys/devices")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var errs []error
	for _, class := range names {
		if !strings.HasPrefix(class, "cpu_") {
			continue
		}
		cpus, err := h.ReadAttribute("sys/devices/" + class + "/cpus")
		switch {
		case err == nil && cpus != "":
			out[class] = cpus
		case err != nil:
			errs = append(errs, host.Present(err))
		}
	}
	return out, errors.Join(errs...)
}

// readList reads a list of the kernel, such as 0-3,8.
func readList(h host.Host, file string, most int64) ([]int64, error) {
	text, err := h.ReadAttribute(file)
	if err != nil {
		return nil, err
	}
	ids, err := parseList(text, most)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", file, err)
	}
	return ids, nil
}

// parseList returns the ids of a list such as 0-3,8, which the kernel writes in ascending order. An empty string is an empty list.
func parseList(text string, most int64) ([]int64, error) {
	var ids []int64
	if text == "" {
		return nil, nil
	}
	next := int64(0)
	for part := range strings.SplitSeq(text, ",") {
		low, high, ok := strings.Cut(part, "-")
		if !ok {
			high = low
		}
		from, err := strconv.ParseInt(low, 10, 64)
		to, err2 := strconv.ParseInt(high, 10, 64)
		if err != nil || err2 != nil || from < next || from > to || to > most {
			return nil, fmt.Errorf("invalid list of ids %.40q", text)
		}
		for next = from; next <= to; next++ {
			ids = append(ids, next)
		}
	}
	return ids, nil
}

func set(ids []int64) map[int64]bool {
	out := make(map[int64]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}
