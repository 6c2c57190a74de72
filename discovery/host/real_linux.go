package host

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openWithoutLinks opens a file whose path has no symbolic link in it, in one system call; with a link the error is
// syscall.ELOOP. Nearly all reads of a discovery are such, and walking each path instead would double their number.
// Where openat2(2) is missing (before Linux 5.6) or forbidden (an old seccomp profile), every path counts as one with
// links.
func openWithoutLinks(name string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), name), nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		err = syscall.ELOOP
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: err}
}

func uname() (Uname, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Uname{}, os.NewSyscallError("uname", err)
	}
	return Uname{
		Sysname:  unix.ByteSliceToString(u.Sysname[:]),
		Nodename: unix.ByteSliceToString(u.Nodename[:]),
		Release:  unix.ByteSliceToString(u.Release[:]),
		Version:  unix.ByteSliceToString(u.Version[:]),
		Machine:  unix.ByteSliceToString(u.Machine[:]),
	}, nil
}

// hwcaps returns the entries AT_HWCAP and AT_HWCAP2 of the auxiliary vector, see include/uapi/linux/auxvec.h.
func hwcaps() (hwcap, hwcap2 uint64) {
	const atHWCAP, atHWCAP2 = 16, 26
	vec, err := unix.Auxv()
	if err != nil {
		return 0, 0
	}
	for _, e := range vec {
		switch e[0] {
		case atHWCAP:
			hwcap = uint64(e[1])
		case atHWCAP2:
			hwcap2 = uint64(e[1])
		}
	}
	return hwcap, hwcap2
}
