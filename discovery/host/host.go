// Package host is a read-only view of the machine that is being discovered.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// Bounds on what is read from a host. Everything under /sys and /proc is the kernel's and small; but device firmware,
// mounted directories and a broken machine can put anything there, and one bad file must not cost the worker its memory.
const (
	// MaxFileSize bounds one file. A distribution's kernel configuration has 300 KiB, /proc/cpuinfo of a machine with
	// 512 CPUs about 1 MiB.
	MaxFileSize = 4 << 20
	// MaxAttributeSize bounds a file that holds one value: sysfs never shows more than a page.
	MaxAttributeSize = 4096
	// MaxEntries bounds the entries of one directory. A server with 64 SR-IOV ports of 126 functions has 8,064 PCI devices.
	MaxEntries = 16384
	// MaxLinks bounds the symbolic links followed in one path; it is the kernel's own limit.
	MaxLinks = 40
)

// ErrTooLarge says that a file or a directory is over its bound.
var ErrTooLarge = errors.New("larger than the limit")

// FS is a tree of files rooted at "/", with names such as "sys/bus/pci/devices" and "proc/modules". Symbolic links are
// followed inside the tree and cannot leave it: ".." at the root stays there, as in a chroot. Implementations are pointers,
// so that a source which remembers what it parsed can tell one tree from another.
type FS interface {
	fs.FS
	// ReadDirNames returns the names in a directory, in any order, at most one more than max of them.
	ReadDirNames(name string, max int) ([]string, error)
	// ReadLink returns the target of a symbolic link as it is written.
	ReadLink(name string) (string, error)
	// Resolve returns the name without links that a name leads to.
	Resolve(name string) (string, error)
	// Stat describes what a name leads to, links followed.
	Stat(name string) (fs.FileInfo, error)
}

// System is what a host tells through system calls and instructions, not through files.
type System interface {
	// Uname names the running kernel.
	Uname() (Uname, error)
	// NodeName is the name of the Kubernetes Node.
	NodeName() string
	// CPU is what the processor says of itself.
	CPU() CPUFacts
}

// Uname is the result of uname(2).
type Uname struct {
	Sysname  string `json:"sysname,omitempty"`
	Nodename string `json:"nodename,omitempty"`
	Release  string `json:"release"`
	Version  string `json:"version,omitempty"`
	Machine  string `json:"machine,omitempty"`
}

// Host is a machine to discover. Its reads are bounded and fail once its context is done. The zero value has no files.
type Host struct {
	FS     FS
	System System
	ctx    context.Context
}

// WithContext returns the same host with reads that fail once ctx is done, so that a source which reads thousands of files
// stops at its deadline without asking.
func (h Host) WithContext(ctx context.Context) Host {
	h.ctx = ctx
	return h
}

// ReadFile returns the content of a file of at most MaxFileSize bytes. The error is a *fs.PathError that matches
// fs.ErrNotExist if the host has no such file, and ErrTooLarge if it has more.
func (h Host) ReadFile(name string) ([]byte, error) {
	data, err := h.ReadPrefix(name, MaxFileSize+1)
	if err == nil && len(data) > MaxFileSize {
		return nil, &fs.PathError{Op: "read", Path: "/" + name, Err: fmt.Errorf("%w of %d bytes", ErrTooLarge, MaxFileSize)}
	}
	return data, err
}

// ReadPrefix returns the first n bytes of a file, or all of it if it is shorter.
func (h Host) ReadPrefix(name string, n int) ([]byte, error) {
	f, err := h.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := readAtMost(f, n)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return data, nil
}

// ReadAttribute returns the value of a file that holds one value, cleaned as Clean does. The error is that of ReadFile.
func (h Host) ReadAttribute(name string) (string, error) {
	data, err := h.ReadPrefix(name, MaxAttributeSize)
	if err != nil {
		return "", err
	}
	return Clean(data), nil
}

// Open opens a regular file for reading. A directory, a device or a pipe is refused.
func (h Host) Open(name string) (fs.File, error) {
	if err := h.check("open", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("not a regular file but %s", kind(info.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, pathError("open", name, err)
	}
	return f, nil
}

// ReadDir returns the sorted names in a directory of at most MaxEntries entries.
func (h Host) ReadDir(name string) ([]string, error) {
	if err := h.check("readdir", name); err != nil {
		return nil, err
	}
	names, err := h.FS.ReadDirNames(name, MaxEntries)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	if len(names) > MaxEntries {
		return nil, pathError("readdir", name, fmt.Errorf("%w of %d entries", ErrTooLarge, MaxEntries))
	}
	slices.Sort(names)
	return names, nil
}

// ReadLink returns the target of a symbolic link as it is written.
func (h Host) ReadLink(name string) (string, error) {
	if err := h.check("readlink", name); err != nil {
		return "", err
	}
	target, err := h.FS.ReadLink(name)
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return target, nil
}

// Resolve returns the name without symbolic links that a name leads to, so that many files of one directory can be read
// without walking its links for each. A name that leads nowhere is returned as it is: reading it will say why.
func (h Host) Resolve(name string) string {
	if h.check("resolve", name) != nil {
		return name
	}
	real, err := h.FS.Resolve(name)
	if err != nil {
		return name
	}
	return real
}

// Stat describes what a name leads to, links followed.
func (h Host) Stat(name string) (fs.FileInfo, error) {
	if err := h.check("stat", name); err != nil {
		return nil, err
	}
	info, err := h.FS.Stat(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return info, nil
}

// Exists reports whether a name leads to something. An error other than fs.ErrNotExist is returned.
func (h Host) Exists(name string) (bool, error) {
	_, err := h.Stat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, err
}

// check refuses a read before it starts: of a host without files, of a bad name, after the deadline.
func (h Host) check(op, name string) error {
	if h.ctx != nil && h.ctx.Err() != nil {
		return pathError(op, name, context.Cause(h.ctx))
	}
	if !fs.ValidPath(name) {
		return pathError(op, name, fs.ErrInvalid)
	}
	if h.FS == nil {
		return pathError(op, name, fs.ErrNotExist)
	}
	return nil
}

// Present turns "the host has no such thing" into no error, for parts that a host may lack.
func Present(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Unanswered reports whether an error means that a file of sysfs has no value: it is not there, or the driver behind it
// does not answer (EINVAL, ENODEV, ENXIO, EOPNOTSUPP; see Documentation/filesystems/sysfs.rst on show methods).
func Unanswered(err error) bool {
	for _, no := range []error{fs.ErrNotExist, syscall.EINVAL, syscall.ENODEV, syscall.ENXIO, syscall.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// pathError says where an error happened, as an absolute path on the host. An error that names a path already (and that
// path may be inside a container's mount) loses it.
func pathError(op, name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &fs.PathError{Op: op, Path: "/" + name, Err: err}
}

func readAtMost(r io.Reader, n int) ([]byte, error) {
	// The first guess fits a sysfs attribute; most reads end within it. io.LimitReader over io.ReadAll would start at 512
	// bytes and allocate the reader besides.
	buf := make([]byte, 0, min(n, 256))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, min(n-len(buf), len(buf)*3))
		}
		m, err := r.Read(buf[len(buf):min(cap(buf), n)])
		buf = buf[:len(buf)+m]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.String()
}
