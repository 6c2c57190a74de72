// Package sandbox removes privileges that a process does not need after startup.
package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The access rights of Landlock by ABI version; see Documentation/userspace-api/landlock.rst.
const (
	writeV1 = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	writeV2 = unix.LANDLOCK_ACCESS_FS_REFER
	writeV3 = unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writeV5 = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	netV4   = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	// Scoping of signals (also ABI version 6) is not used: before a later fix it prevented threads of one process from signaling
	// each other, which Go's runtime does constantly.
	scopeV6 = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
)

// ruleNetPort is LANDLOCK_RULE_NET_PORT, and netPort its struct landlock_net_port_attr.
const ruleNetPort = 2

type netPort struct {
	access uint64
	port   uint64
}

// ErrNone reports that the kernel does not support Landlock or that it is disabled.
var ErrNone = errors.New("the kernel does not support Landlock")

// Enter permanently removes privileges that a worker does not need after startup: to write, create, remove or execute files, to
// listen on TCP ports, and to connect to TCP ports other than the given ones; without ports, all are allowed. Reading files is not
// restricted, because the container only mounts what the worker may read. UDP and MPTCP, which Landlock does not cover, can be
// restricted with a NetworkPolicy. Enter returns a description of the restrictions for the log.
func Enter(ports []uint16) (string, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return "", ErrNone
	}
	attr, what := ruleset(int(version), len(ports) > 0)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return "", fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if attr.Access_net&unix.LANDLOCK_ACCESS_NET_CONNECT_TCP != 0 {
		for _, port := range ports {
			rule := netPort{access: unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port: uint64(port)}
			if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, ruleNetPort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
				return "", fmt.Errorf("landlock_add_rule: %w", errno)
			}
		}
	}
	// Both are per thread and inherited by new threads.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return "", fmt.Errorf("prctl: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return "", fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return what, nil
}

// ruleset returns the restrictions that an ABI version supports. The kernel accepts unknown fields if they are zero.
func ruleset(version int, connect bool) (unix.LandlockRulesetAttr, string) {
	attr := unix.LandlockRulesetAttr{Access_fs: writeV1}
	what := "writing and executing files"
	if version >= 2 {
		attr.Access_fs |= writeV2
	}
	if version >= 3 {
		attr.Access_fs |= writeV3
	}
	if version >= 4 {
		attr.Access_net = netV4
		what += ", listening"
		if connect {
			what += ", connecting elsewhere"
		} else {
			attr.Access_net &^= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= 5 {
		attr.Access_fs |= writeV5
	}
	if version >= 6 {
		attr.Scoped = scopeV6
	}
	return attr, what
}
