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

// caches publishes the size of each cache of the first CPU, and the number of last-level caches of the machine, see
// Documentation/ABI/testing/sysfs-devices-system-cpu. It assumes that all CPUs are alike, since reading those of a large server
// would take longer than everything else; on a hybrid processor the first CPU is a performance core.
func caches(r *discovery.Result, h host.Host) {
	online, err := onlineCPUs(h)
	if err != nil {
		return // reported by topology
	}
	attributes := map[string]string{}
	last, lastIndex := 0, ""
	for i := range maxCaches {
		index := "/cache/index" + strconv.Itoa(i)
		level, kind, size, err := cache(h, cpuDir(online[0])+index)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			r.Problem(err)
			return // the last level is not known
		}
		attributes["l"+strconv.Itoa(level)+kind+".bytes"] = strconv.FormatUint(size, 10)
		if level > last {
			last, lastIndex = level, index
		}
	}
	if len(attributes) == 0 {
		return // a virtual machine may have none
	}
	n, _, err := groups(h, online, lastIndex+"/shared_cpu_list")
	r.Problem(err)
	if n > 0 {
		attributes["l"+strconv.Itoa(last)+".count"] = strconv.Itoa(n)
	}
	r.Attributes(CacheFeature, attributes)
}

// cache reads one cache: its level, "d" or "i" for a data or instruction cache, and its size in bytes.
func cache(h host.Host, dir string) (level int, kind string, size uint64, err error) {
	var text [3]string
	for i, name := range []string{"level", "type", "size"} {
		if text[i], err = h.ReadAttribute(dir + "/" + name); err != nil {
			return 0, "", 0, err
		}
	}
	level, err = strconv.Atoi(text[0])
	if err != nil || level < 1 || level > 9 {
		return 0, "", 0, fmt.Errorf("/%s: %q is not a cache level", dir, text[0])
	}
	kind, ok := map[string]string{"Data": "d", "Instruction": "i", "Unified": ""}[text[1]]
	if !ok {
		return 0, "", 0, discovery.NotA("kind of cache", dir+"/type", text[1])
	}
	size, err = ParseCacheSize(text[2])
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
