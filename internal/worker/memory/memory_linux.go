package memory

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetCode gives back the pages of the program's file that this process has mapped: most of them hold code that only a
// start runs, and the kernel maps 16 pages for each that is touched. What is needed again is mapped again from the page
// cache, which takes less than a microsecond. A worker is idle nearly always, on every node, so it should weigh what being
// idle needs. Failure changes nothing but that.
//
// A position-independent program is left alone: its read-only pages may hold addresses that were written when it was loaded.
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
			continue // what was written to lives in these pages alone
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && start < end && end <= fixedAddresses {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}

// fixedAddresses is above the addresses that linkers give programs that are not position-independent; the kernel maps
// others far higher.
const fixedAddresses = 1 << 32
