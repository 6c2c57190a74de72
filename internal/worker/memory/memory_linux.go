package memory

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetCode unmaps the pages of the executable from this process: most of them contain code that runs only at startup, and the
// kernel maps 16 pages for each page that is accessed. Pages are mapped again from the page cache when needed, in less than a
// microsecond. A worker runs on every node and is almost always idle, so it should only take the memory that it needs while idle.
// Errors are ignored.
//
// It does nothing in a position-independent program, whose read-only pages may contain relocated addresses.
func ForgetCode() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		// 00400000-00be3000 r-xp 00000000 fe:01 1234    /assay-worker; see proc_pid_maps(5).
		f := strings.Fields(string(line))
		if len(f) < 6 || f[5] != program || strings.Contains(f[1], "w") {
			continue // these pages contain modified data
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && start < end && end <= fixedAddresses {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}

// fixedAddresses is larger than the addresses in programs that are not position-independent. The kernel maps other programs far
// above it.
const fixedAddresses = 1 << 32
