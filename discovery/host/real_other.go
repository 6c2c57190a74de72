//go:build !linux

package host

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// openWithoutLinks treats every path as one with links.
func openWithoutLinks(name string) (*os.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

func uname() (Uname, error) {
	return Uname{}, errors.New("discovery of a running host needs Linux, this is " + runtime.GOOS)
}

func hwcaps() (hwcap, hwcap2 uint64) { return 0, 0 }
