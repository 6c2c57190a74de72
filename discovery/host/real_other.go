//go:build !linux

package host

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// openWithoutLinks and statWithoutLinks treat every path as one with links.
func openWithoutLinks(name string) (fs.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

func statWithoutLinks(name string) (fs.FileInfo, error) {
	return nil, &os.PathError{Op: "stat", Path: name, Err: syscall.ELOOP}
}

// openFollowing opens a file as the system does, following links.
func openFollowing(name string) (fs.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func uname() (Uname, error) {
	return Uname{}, errors.New("discovery of a running host needs Linux, this is " + runtime.GOOS)
}

func hwcaps() (hwcap, hwcap2 uint64) { return 0, 0 }
