package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Paths are the mount points of the host's directories, which differ in a worker's container. An empty path means the directory of
// that name in Root.
type Paths struct {
	// Root is the root directory of the host; empty means "/".
	Root string
	Boot string
	Etc  string
	Lib  string
	Proc string
	Run  string
	Sys  string
	Usr  string
	// NodeName is the name of the Kubernetes Node; empty means the lower-case hostname, which is what a kubelet uses without a
	// cloud provider.
	NodeName string
}

// ContainerPaths are the paths in NFD's manifests, which mount the host's directories as /host-*, and /host-run. /proc is the
// container's: the files that are read there are the same in every container.
func ContainerPaths() Paths {
	return Paths{Boot: "/host-boot", Etc: "/host-etc", Lib: "/host-lib", Run: "/host-run", Sys: "/host-sys", Usr: "/host-usr"}
}

// Real returns the machine on which the program runs. It is safe for concurrent use.
func Real(p Paths) Host {
	root := p.Root
	if root == "" {
		root = "/"
	}
	mounts := map[string]string{}
	for name, dir := range map[string]string{"boot": p.Boot, "etc": p.Etc, "lib": p.Lib, "proc": p.Proc, "run": p.Run, "sys": p.Sys, "usr": p.Usr} {
		if dir != "" {
			mounts[name] = dir
		}
	}
	return Host{FS: &realFS{root: root, mounts: mounts}, System: &realSystem{nodeName: p.NodeName}}
}

// realFS maps names on the host to names that this process can open. It resolves links in terms of the host's names: in a
// container, /host-etc/os-release is a link to ../usr/lib/os-release, which the kernel would resolve to the container's file, not
// the host's.
type realFS struct {
	root   string
	mounts map[string]string // by first component of the name: directory
}

func (f *realFS) local(name string) string {
	if name == "." {
		return f.root
	}
	first, rest, _ := strings.Cut(name, "/")
	if dir, ok := f.mounts[first]; ok {
		return filepath.Join(dir, rest)
	}
	return filepath.Join(f.root, name)
}

// Open opens a file; it follows links inside the tree. It does not block on a pipe.
func (f *realFS) Open(name string) (fs.File, error) {
	file, err := openWithoutLinks(f.local(name))
	if !errors.Is(err, syscall.ELOOP) {
		return file, err
	}
	name, err = f.Resolve(name)
	if err != nil {
		return nil, err
	}
	return openFollowing(f.local(name))
}

func (f *realFS) ReadDirNames(name string, max int) ([]string, error) {
	dir, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.(interface{ Readdirnames(int) ([]string, error) }).Readdirnames(max + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func (f *realFS) ReadLink(name string) (string, error) {
	dir, base := parent(name), name[strings.LastIndexByte(name, '/')+1:]
	dir, err := f.Resolve(dir)
	if err != nil {
		return "", err
	}
	return os.Readlink(filepath.Join(f.local(dir), base))
}

func (f *realFS) Stat(name string) (fs.FileInfo, error) {
	info, err := statWithoutLinks(f.local(name))
	if !errors.Is(err, syscall.ELOOP) {
		return info, err
	}
	if name, err = f.Resolve(name); err != nil {
		return nil, err
	}
	return os.Lstat(f.local(name))
}

func (f *realFS) Lstat(name string) (fs.FileInfo, error) {
	dir, err := f.Resolve(parent(name))
	if err != nil {
		return nil, err
	}
	return os.Lstat(filepath.Join(f.local(dir), filepath.Base(name)))
}

func (f *realFS) OpenBelow(dir, name string) (fs.File, error) {
	root, err := os.OpenRoot(f.local(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (f *realFS) Resolve(name string) (string, error) {
	return resolve(name, func(n string) (string, error) {
		if _, ok := f.mounts[n]; ok {
			// The mount point itself may be a link in the file system of this process, which is followed.
			return "", errNotLink
		}
		target, err := os.Readlink(f.local(n))
		if errors.Is(err, syscall.EINVAL) {
			return "", errNotLink
		}
		return target, err
	})
}

// realSystem queries the kernel and the processor once: neither changes while the machine is running.
type realSystem struct {
	nodeName string
	once     sync.Once
	cpu      CPUFacts
}

func (s *realSystem) Uname() (Uname, error) { return uname() }

func (s *realSystem) NodeName() string {
	if s.nodeName != "" {
		return s.nodeName
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(name))
}

func (s *realSystem) CPU() CPUFacts {
	s.once.Do(func() { s.cpu = thisCPU() })
	return s.cpu
}
