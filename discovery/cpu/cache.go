package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// maxCaches is the maximum number of caches of one CPU; current CPUs have four, two of level one and one of each other level.
const maxCaches = 16

// fullCapacity is the capacity of the fastest CPUs of a machine, see Documentation/scheduler/sched-capacity.rst.
const fullCapacity = 1024

// caches publishes the size of each cache of a CPU, and the number of last-level caches of the machine, see
// Documentation/ABI/testing/sysfs-devices-system-cpu. It reads one CPU, since reading all of a large server would take longer than
// everything else: the first of the fastest.
func caches(r *discovery.Result, h host.Host) {
	online, err := onlineCPUs(h)
	if err != nil {
		return // reported by topology
	}
	attributes := map[string]string{}
	last, lastIndex := 0, ""
	cpu, err := fastest(h, online)
	if err != nil {
		r.Problem(err)
		return
	}
	for i := range maxCaches {
		index := "/cache/index" + strconv.Itoa(i)
		level, kind, size, err := cache(h, cpuDir(cpu)+index)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			r.Problem(err)
			return // the last level is not known
		}
		if size > 0 {
			attributes["l"+strconv.Itoa(level)+kind+".bytes"] = strconv.FormatUint(size, 10)
		}
		if level > last {
			last, lastIndex = level, index
		}
	}
	if last == 0 {
		return // a virtual machine may have none
	}
	n, _, err := groups(h, online, lastIndex+"/shared_cpu_list")
	r.Problem(err)
	if n > 0 {
		attributes["l"+strconv.Itoa(last)+".count"] = strconv.Itoa(n)
	}
	r.Attributes(CacheFeature, attributes)
}

// fastest returns the first CPU with the highest capacity. Where cores differ, as in big.LITTLE, the first CPU is often one of the
// slow ones. Processors with equal cores, and x86, where the first CPU is fast, need no more than one read.
func fastest(h host.Host, online []int) (int, error) {
	best, highest := online[0], -1
	for _, cpu := range online {
		file := cpuDir(cpu) + "/cpu_capacity"
		text, err := h.ReadAttribute(file)
		if err != nil {
			return best, host.Present(err)
		}
		capacity, err := strconv.Atoi(text)
		if err != nil {
			return 0, discovery.NotA("number", file, text)
		}
		if capacity > highest {
			best, highest = cpu, capacity
		}
		if capacity >= fullCapacity {
			break
		}
	}
	return best, nil
}

// cache reads one cache: its level, "d" or "i" for a data or instruction cache, and its size in bytes, 0 if the firmware does not
// describe it.
func cache(h host.Host, dir string) (level int, kind string, size uint64, err error) {
	text, err := h.ReadAttribute(dir + "/level")
	if err != nil {
		return 0, "", 0, err
	}
	level, err = strconv.Atoi(text)
	if err != nil || level < 1 || level > 9 {
		return 0, "", 0, discovery.NotA("cache level", dir+"/level", text)
	}
	text, err = h.ReadAttribute(dir + "/type")
	if err != nil {
		return 0, "", 0, err
	}
	kind, ok := map[string]string{"Data": "d", "Instruction": "i", "Unified": ""}[text]
	if !ok {
		return 0, "", 0, discovery.NotA("kind of cache", dir+"/type", text)
	}
	text, err = h.ReadAttribute(dir + "/size")
	if errors.Is(err, fs.ErrNotExist) {
		return level, kind, 0, nil
	}
	if err != nil {
		return 0, "", 0, err
	}
	size, err = ParseCacheSize(text)
	if err != nil {
		return 0, "", 0, fmt.Errorf("/%s: %w", dir, err)
	}
	return level, kind, size, nil
}

// ParseCacheSize returns the bytes of a cache size as the kernel prints it: "48K".
func ParseCacheSize(s string) (uint64, error) {
	digits, ok := strings.CutSuffix(s, "K")
	size, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("%.40q is not a cache size", s)
	}
	return size << 10, nil
}
