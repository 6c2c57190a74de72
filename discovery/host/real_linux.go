package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openWithoutLinks opens a file whose path contains no symbolic link, with one system call; if it contains a link the error is
// syscall.ELOOP. Nearly all paths in a discovery have none, and walking each path would double the number of system calls. If
// openat2(2) is missing (before Linux 5.6) or forbidden (by an old seccomp profile), every path is treated as one with links.
func openWithoutLinks(name string) (fs.File, error) {
	fd, err := openat2(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &rawFile{name: name, fd: fd}, nil
}

// statWithoutLinks returns information about a file whose path contains no symbolic link; if it contains a link the error is
// syscall.ELOOP.
func statWithoutLinks(name string) (fs.FileInfo, error) {
	fd, err := openat2(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	f := rawFile{name: name, fd: fd}
	defer func() { _ = f.Close() }()
	return f.Stat()
}

func openat2(name string, flags uint64) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		err = syscall.ELOOP
	}
	return -1, &os.PathError{Op: "open", Path: name, Err: err}
}

// openFollowing opens a file as the kernel does, following links.
func openFollowing(name string) (fs.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &rawFile{name: name, fd: fd}, nil
}

// rawFile is an open file that does not use the runtime's poller, which is useless in /sys and /proc: registering with it takes
// four of the eight system calls that os.File needs to read an attribute. The caller must close it; there is no finalizer.
type rawFile struct {
	name string
	fd   int
}

func (f *rawFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := unix.Read(f.fd, p)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(f.fd, p)
	}
	switch {
	case err != nil:
		return 0, &os.PathError{Op: "read", Path: f.name, Err: err}
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f *rawFile) Stat() (fs.FileInfo, error) {
	info := &rawInfo{name: path.Base(f.name)}
	if err := syscall.Fstat(f.fd, &info.stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: f.name, Err: err}
	}
	return info, nil
}

func (f *rawFile) Close() error { return unix.Close(f.fd) }

// Readdirnames returns at most n names in a directory, in any order.
func (f *rawFile) Readdirnames(n int) ([]string, error) {
	var names []string
	buf := make([]byte, direntBuffer)
	for len(names) < n {
		size, err := unix.ReadDirent(f.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "readdirent", Path: f.name, Err: err}
		}
		if size <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:size], n-len(names), names)
	}
	return names, nil
}

// direntBuffer is the buffer size in Go's os package: about 200 names at a time.
const direntBuffer = 8 << 10

// rawInfo is the result of fstat(2) as fs.FileInfo, with the same Sys type as in package os.
type rawInfo struct {
	name string
	stat syscall.Stat_t
}

func (i *rawInfo) Name() string       { return i.name }
func (i *rawInfo) Size() int64        { return i.stat.Size }
func (i *rawInfo) ModTime() time.Time { return time.Unix(i.stat.Mtim.Unix()) }
func (i *rawInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i *rawInfo) Sys() any           { return &i.stat }

func (i *rawInfo) Mode() fs.FileMode {
	mode := fs.FileMode(i.stat.Mode & 0o777)
	switch i.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	}
	return mode
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
