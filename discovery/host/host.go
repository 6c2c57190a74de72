// Package host provides a read-only view of the machine to discover.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

// Limits on reads from a host. Everything in /sys and /proc comes from the kernel and is small; but device firmware, mounted
// directories and a broken machine can contain anything, and one bad file must not exhaust the worker's memory.
const (
	// MaxFileSize is the maximum size of a file. The kernel configuration of a distribution has 300 KiB, /proc/cpuinfo of a machine
	// with 512 CPUs about 1 MiB.
	MaxFileSize = 4 << 20
	// MaxAttributeSize is the maximum size of a file with one value: sysfs files have at most one page.
	MaxAttributeSize = 4096
	// MaxEntries is the maximum number of entries of a directory. A server with 64 SR-IOV ports with 126 functions each has 8,064
	// PCI devices.
	MaxEntries = 16384
	// MaxLinks is the maximum number of symbolic links in a path; it is the kernel's limit.
	MaxLinks = 40
)

var (
	// ErrTooLarge means that a file or a directory exceeds its limit.
	ErrTooLarge = errors.New("larger than the limit")
	// ErrNotRegular means that a file is a directory, a pipe, a socket or a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrOutside means that a link leads out of a directory that ReadBelow must not leave.
	ErrOutside = errors.New("a symbolic link leads out of the directory")
)

// FS is a file tree rooted at "/", with names such as "sys/bus/pci/devices" and "proc/modules". Symbolic links are resolved inside
// the tree and cannot leave it: ".." at the root stays at the root, as in a chroot. Implementations are pointers, so that a source
// that caches results can distinguish trees.
type FS interface {
	fs.FS
	// ReadDirNames returns the names in a directory, in any order, at most max+1 of them.
	ReadDirNames(name string, max int) ([]string, error)
	// ReadLink returns the unresolved target of a symbolic link.
	ReadLink(name string) (string, error)
	// Resolve returns a name with all symbolic links resolved.
	Resolve(name string) (string, error)
	// Stat returns information about a file; it follows links.
	Stat(name string) (fs.FileInfo, error)
	// Lstat returns information about a file; it does not follow a link at the end of the name.
	Lstat(name string) (fs.FileInfo, error)
	// OpenBelow opens a file below a directory whose name contains no link. It never leaves the directory, even if other processes
	// replace files by links meanwhile.
	OpenBelow(dir, name string) (fs.File, error)
}

// System provides the facts of a host that come from system calls and instructions, not from files.
type System interface {
	// Uname returns the running kernel.
	Uname() (Uname, error)
	// NodeName returns the name of the Kubernetes Node.
	NodeName() string
	// CPU returns the facts of the processor.
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

// ErrNotMounted means that a file is missing because the kernel's whole file system is: nothing is known about the file. It does not
// match fs.ErrNotExist, which a source can take for "this machine has none".
var ErrNotMounted = errors.New("not mounted")

// kernelFiles are the kernel's file systems, and a name that each of them has on every machine.
var kernelFiles = []struct{ dir, always string }{{"proc", "proc/version"}, {"sys", "sys/devices"}}

// Host is a machine to discover. Its reads have size limits and fail once its context is done. The zero value has no files.
type Host struct {
	FS      FS
	System  System
	ctx     context.Context
	missing []string // the kernel's file systems that Checked did not find, such as "sys"
}

// Checked returns the same host after a check that /proc and /sys are there: in a container without the mounts, in an unpacked
// image, and in an archive of a few files they are not. Reads of missing files there fail with ErrNotMounted.
func (h Host) Checked() Host {
	var missing []string
	for _, k := range kernelFiles {
		if h.FS == nil {
			break // it has no files that could be missing
		}
		if _, err := h.Stat(k.always); errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotMounted) {
			missing = append(missing, k.dir)
		}
	}
	h.missing = missing
	return h
}

// NotMounted returns an error that matches ErrNotMounted for each of the kernel's file systems that Checked did not find.
func (h Host) NotMounted() []error {
	var errs []error
	for _, k := range kernelFiles {
		if slices.Contains(h.missing, k.dir) {
			path := "/" + k.always
			if r, ok := h.FS.(*realFS); ok {
				path = r.local(k.always) // in a container, it names the mount
			}
			errs = append(errs, fmt.Errorf("/%s of the host is %w: there is no %s", k.dir, ErrNotMounted, path))
		}
	}
	return errs
}

// WithContext returns the same host with reads that fail once ctx is done, so that a source that reads thousands of files stops at
// its deadline.
func (h Host) WithContext(ctx context.Context) Host {
	h.ctx = ctx
	return h
}

// ReadFile returns the content of a file of at most MaxFileSize bytes. The error is a *fs.PathError. It matches fs.ErrNotExist if
// the file does not exist, and ErrTooLarge if it is larger.
func (h Host) ReadFile(name string) ([]byte, error) {
	data, err := h.ReadPrefix(name, MaxFileSize+1)
	if err == nil && len(data) > MaxFileSize {
		return nil, &fs.PathError{Op: "read", Path: "/" + name, Err: fmt.Errorf("%w of %d bytes", ErrTooLarge, MaxFileSize)}
	}
	return data, err
}

// ReadPrefix returns the first n bytes of a file, or the whole file if it is shorter.
func (h Host) ReadPrefix(name string, n int) ([]byte, error) {
	f, err := h.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := readAtMost(f, n)
	if err != nil {
		return nil, h.pathError("read", name, err)
	}
	return data, nil
}

// ReadText returns the text in a file of at most MaxFileSize bytes, as Text does. Errors are those of ReadFile.
func (h Host) ReadText(name string) ([]byte, error) {
	data, err := h.ReadFile(name)
	return Text(data), err
}

// ReadAttribute returns the value in a file with one value, sanitized by Clean. Errors are those of ReadFile.
func (h Host) ReadAttribute(name string) (string, error) {
	data, err := h.ReadPrefix(name, MaxAttributeSize)
	if err != nil {
		return "", err
	}
	return Clean(data), nil
}

// Open opens a regular file for reading. It rejects directories, devices and pipes.
func (h Host) Open(name string) (fs.File, error) {
	if err := h.check("open", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name)
	if err != nil {
		return nil, h.pathError("open", name, err)
	}
	if _, err := regular(f.Stat()); err != nil {
		_ = f.Close()
		return nil, h.pathError("open", name, err)
	}
	return f, nil
}

// regular returns an error that matches ErrNotRegular unless the file is a regular one.
func regular(info fs.FileInfo, err error) (fs.FileInfo, error) {
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w but %s", ErrNotRegular, kind(info.Mode()))
	}
	return info, err
}

// ReadBelow returns the first n bytes of a file in a directory in which other users may be able to create links. It follows links to
// regular files below the directory, and returns information about each of them and about the file. For all other links, the error
// matches ErrOutside.
func (h Host) ReadBelow(dir, name string, n int) (data []byte, file fs.FileInfo, links []fs.FileInfo, err error) {
	full := dir + "/" + name
	if err := h.check("open", full); err != nil {
		return nil, nil, nil, err
	}
	data, file, links, err = readBelow(h.FS, dir, name, n)
	if err != nil {
		return nil, nil, nil, h.pathError("open", full, err)
	}
	return data, file, links, nil
}

func readBelow(tree FS, dir, name string, n int) (data []byte, file fs.FileInfo, links []fs.FileInfo, err error) {
	dir, err = tree.Resolve(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	real, err := resolveFrom(dir, name, func(part string) (string, error) {
		info, err := tree.Lstat(part)
		switch {
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink == 0:
			return "", errNotLink
		}
		links = append(links, info)
		return tree.ReadLink(part)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	below, ok := strings.CutPrefix(real, dir+"/")
	if !ok {
		return nil, nil, nil, ErrOutside
	}
	if _, err := regular(tree.Stat(real)); err != nil { // opening a device can do something
		return nil, nil, nil, err
	}
	f, err := tree.OpenBelow(dir, below)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = f.Close() }()
	if file, err = regular(f.Stat()); err != nil {
		return nil, nil, nil, err
	}
	data, err = readAtMost(f, n)
	return data, file, links, err
}

// ReadDir returns the sorted names in a directory of at most MaxEntries entries.
func (h Host) ReadDir(name string) ([]string, error) {
	if err := h.check("readdir", name); err != nil {
		return nil, err
	}
	names, err := h.FS.ReadDirNames(name, MaxEntries)
	if err != nil {
		return nil, h.pathError("readdir", name, err)
	}
	if len(names) > MaxEntries {
		return nil, h.pathError("readdir", name, fmt.Errorf("%w of %d entries", ErrTooLarge, MaxEntries))
	}
	slices.Sort(names)
	return names, nil
}

// ReadLink returns the unresolved target of a symbolic link.
func (h Host) ReadLink(name string) (string, error) {
	if err := h.check("readlink", name); err != nil {
		return "", err
	}
	target, err := h.FS.ReadLink(name)
	if err != nil {
		return "", h.pathError("readlink", name, err)
	}
	return target, nil
}

// Resolve returns a name with all symbolic links resolved, so that many files in one directory can be read without resolving its
// links each time. If the name does not exist, it returns it unchanged: reading it will return the error.
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

// Stat returns information about a file; it follows links.
func (h Host) Stat(name string) (fs.FileInfo, error) {
	if err := h.check("stat", name); err != nil {
		return nil, err
	}
	info, err := h.FS.Stat(name)
	if err != nil {
		return nil, h.pathError("stat", name, err)
	}
	return info, nil
}

// Exists reports whether a file exists. It returns errors other than fs.ErrNotExist.
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

// check returns an error before a read starts: if the host has no files, for an invalid name, and after the deadline.
func (h Host) check(op, name string) error {
	if h.ctx != nil && h.ctx.Err() != nil {
		return h.pathError(op, name, context.Cause(h.ctx))
	}
	if !fs.ValidPath(name) {
		return h.pathError(op, name, fs.ErrInvalid)
	}
	if h.FS == nil {
		return h.pathError(op, name, fs.ErrNotExist)
	}
	return nil
}

// Present returns nil for fs.ErrNotExist, and other errors unchanged, for optional parts of a host.
func Present(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Unanswered reports whether an error means that a sysfs file has no value: it does not exist, or its driver does not provide the
// value (EINVAL, ENODEV, ENXIO, EOPNOTSUPP; see Documentation/filesystems/sysfs.rst on show methods).
func Unanswered(err error) bool {
	for _, no := range []error{fs.ErrNotExist, syscall.EINVAL, syscall.ENODEV, syscall.ENXIO, syscall.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// pathError adds the absolute path on the host to an error. It removes a path that the error already contains, which could be that
// of a mount in the container.
func (h Host) pathError(op, name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if len(h.missing) > 0 && errors.Is(err, fs.ErrNotExist) {
		if dir, _, _ := strings.Cut(name, "/"); slices.Contains(h.missing, dir) {
			err = ErrNotMounted
		}
	}
	return &fs.PathError{Op: op, Path: "/" + name, Err: err}
}

func readAtMost(r io.Reader, n int) ([]byte, error) {
	// The first size fits a sysfs attribute, so most reads need no second allocation. io.ReadAll with io.LimitReader would start
	// with 512 bytes and also allocate the reader.
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
