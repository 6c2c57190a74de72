package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/discovery/host"
)

const (
	// ueventGroup is the multicast group of kernel events; udev's is 2.
	ueventGroup = 1
	// receiveBuffer is large enough for a burst of events: a NIC that creates 126 functions sends about 1,000 events of 300 bytes.
	receiveBuffer = 1 << 20
	// messageSize is larger than a uevent, which has at most 2 KiB of fields, and fits dozens of file events. A link message can be
	// larger, but only its header is read.
	messageSize = 8 << 10
)

// Names of inputs.
const (
	kernelEvents = "kernel events"
	networkLinks = "network links"
)

// Host watches the machine on which the program runs: kernel events of devices and modules, changes of network links, and files.
// Which events arrive depends on namespaces: a pod receives device events in any network namespace, but link events only with the
// host's network. Everything else must be polled.
type Host struct {
	files  *files
	inputs []input
}

// input is a source of messages; announce processes each of them.
type input struct {
	name     string
	file     *os.File
	announce func(message []byte, notify func(string))
}

// Open starts watching. It returns an error for each input that the process cannot open, and a Host in any case.
func Open(targets []Target) (*Host, []error) {
	h := &Host{}
	var errs []error
	listen := func(name string, protocol int, groups uint32, announce func([]byte, func(string))) {
		file, err := netlink(name, protocol, groups)
		if err != nil {
			errs = append(errs, fmt.Errorf("listen to %s: %w", name, err))
			return
		}
		h.inputs = append(h.inputs, input{name, file, announce})
	}
	listen(kernelEvents, unix.NETLINK_KOBJECT_UEVENT, ueventGroup, func(m []byte, notify func(string)) {
		if source := ueventSource(m); source != "" {
			notify(source)
		}
	})
	listen(networkLinks, unix.NETLINK_ROUTE, unix.RTMGRP_LINK, func(m []byte, notify func(string)) {
		if isLinkMessage(m) {
			notify(networkSource)
		}
	})
	files, err := newFiles(targets)
	if err != nil {
		return h, append(errs, fmt.Errorf("watch files: %w", err))
	}
	h.files = files
	h.inputs = append(h.inputs, input{"files", files.file, files.announce})
	return h, errs
}

// Files reports whether the targets are watched.
func (h *Host) Files() bool { return h.files != nil }

// Devices reports whether kernel events of devices, modules, CPUs and memory arrive: the kernel sends them only to sockets in the
// initial user namespace (uevent_net_broadcast_untagged).
func (h *Host) Devices() bool {
	return initialUserNamespace() && slices.ContainsFunc(h.inputs, func(in input) bool { return in.name == kernelEvents })
}

// Covered returns the sources for which all changes cause events, so that they need no polling.
func (h *Host) Covered(of host.Host) []string {
	return h.covered(initialUserNamespace(), SameNetwork(of))
}

func (h *Host) covered(privileged, sameNetwork bool) []string {
	var sources []string
	for _, in := range h.inputs {
		switch {
		case in.name == kernelEvents && privileged:
			sources = append(sources, deviceSources...)
		case in.name == networkLinks && sameNetwork:
			sources = append(sources, networkSource)
		}
	}
	return sources
}

// initialUserNamespace reports whether this is the initial user namespace: all user IDs map to themselves, see user_namespaces(7).
func initialUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(data)), " ") == "0 0 4294967295"
}

// SameNetwork reports whether this process is in the host's network namespace: both have the same interfaces. A pod without the
// host's network has its own loopback and eth0 and gets no events of other links.
func SameNetwork(of host.Host) bool {
	const dir = "sys/class/net"
	shown, err := of.ReadDir(dir)
	if err != nil {
		return false
	}
	own, err := net.Interfaces()
	if err != nil {
		return false
	}
	index := make(map[string]string, len(own))
	for _, i := range own {
		index[i.Name] = strconv.Itoa(i.Index)
	}
	matched := 0
	for _, name := range shown {
		number, err := of.ReadAttribute(dir + "/" + name + "/ifindex")
		if err != nil {
			continue // a file of the bonding driver, or deleted meanwhile
		}
		if index[name] != number {
			return false
		}
		matched++
	}
	return matched == len(own)
}

// Run calls notify with the name of a source for each event, from several goroutines, until ctx is done. It returns after they have
// ended, and closes the Host.
func (h *Host) Run(ctx context.Context, notify func(source string)) {
	var running sync.WaitGroup
	for _, in := range h.inputs {
		running.Go(func() { in.read(ctx, notify) })
	}
	<-ctx.Done()
	for _, in := range h.inputs {
		_ = in.file.Close() // ends the read
	}
	running.Wait()
}

func (in input) read(ctx context.Context, notify func(string)) {
	buffer := make([]byte, messageSize)
	for ctx.Err() == nil {
		n, err := in.file.Read(buffer)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			notify(Everything) // the kernel dropped messages because the buffer was full
		case err != nil:
			return // closed
		default:
			in.announce(buffer[:n], notify)
		}
	}
}

// netlink returns a socket that receives messages for the given groups. Reads use the runtime's poller.
func netlink(name string, protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// The larger buffer requires a privilege; without it the default one can overflow, which is detected.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	return os.NewFile(uintptr(fd), name), nil
}

// isLinkMessage reports whether a route netlink message is about a created, deleted or changed link.
func isLinkMessage(m []byte) bool {
	if len(m) < unix.SizeofNlMsghdr {
		return false
	}
	kind := binary.NativeEndian.Uint16(m[4:])
	return kind == unix.RTM_NEWLINK || kind == unix.RTM_DELLINK
}
