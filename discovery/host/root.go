package host

import (
	"path/filepath"
	"strings"
)

// BootID is the file that identifies the current boot of a machine, see random(4).
const BootID = "proc/sys/kernel/random/boot_id"

// Root returns the machine whose root directory is dir, and whether it is this one, as in a debugging pod that mounts the node's root:
// then both have the same boot ID. Of another machine, or an unpacked image, nothing is known but its files: what this program learns
// from system calls and instructions is not about it. The node has the given name, or that in /etc/hostname.
func Root(dir, node string) (h Host, this bool) {
	h = Real(Paths{Root: dir, NodeName: node})
	theirs, err := h.ReadAttribute(BootID)
	ours, ourErr := Real(Paths{}).ReadAttribute(BootID)
	if filepath.Clean(dir) == "/" || err == nil && ourErr == nil && theirs == ours && ours != "" {
		return h, true
	}
	h.System = &rootSystem{files: h.Checked(), node: node}
	return h, false
}

// rootSystem is a machine of which only the files are known.
type rootSystem struct {
	files Host
	node  string
}

// Uname returns what the kernel of the machine says in /proc/sys/kernel, if it is mounted there: at least the release.
func (s *rootSystem) Uname() (Uname, error) {
	release, err := s.files.ReadAttribute("proc/sys/kernel/osrelease")
	if err != nil {
		return Uname{}, err
	}
	u := Uname{Release: release}
	for name, value := range map[string]*string{
		"ostype": &u.Sysname, "version": &u.Version, "hostname": &u.Nodename, "arch": &u.Machine, // arch: since Linux 6.1
	} {
		*value, _ = s.files.ReadAttribute("proc/sys/kernel/" + name)
	}
	return u, nil
}

// NodeName returns the lower-case hostname, or an empty string if the files do not contain it.
func (s *rootSystem) NodeName() string {
	if s.node != "" {
		return s.node
	}
	for _, file := range []string{"etc/hostname", "proc/sys/kernel/hostname"} {
		if name, err := s.files.ReadAttribute(file); err == nil && name != "" {
			return strings.ToLower(name)
		}
	}
	return ""
}

// CPU returns the architecture, if /proc/cpuinfo has all facts of its processors. On x86 it has not: they are unknown.
func (s *rootSystem) CPU() CPUFacts {
	machine, _ := s.files.ReadAttribute("proc/sys/kernel/arch")
	if strings.HasPrefix(machine, "armv") {
		machine = "arm"
	}
	return CPUFacts{Arch: map[string]string{
		"aarch64": "arm64", "arm": "arm", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64", "loongarch64": "loong64",
	}[machine]}
}
