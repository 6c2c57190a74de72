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
	// ueventGroup is the multicast group that the kernel itself sends to; udev's is 2.
	ueventGroup = 1
	// receiveBuffer holds a burst of events: a NIC that creates 126 functions sends about 1,000 of 300 bytes.
	receiveBuffer = 1 << 20
	// messageSize is larger than a uevent, which has at most 2 KiB of fields, and holds some dozens of file events. A link
	// message may have more; of that only the head is looked at.
	messageSize = 8 << 10
)

// Names of inputs.
const (
	kernelEvents = "kernel events"
	networkLinks = "network links"
)

// Host watches the machine that the program runs on: the kernel's events of devices and modules, changes of network
// links, and files. What can be heard depends on where it listens: a pod hears devices everywhere, but network links only
// with the host's network. Polling remains for the rest.
type Host struct {
	files  *files
	inputs []input
}

// input is something to read messages from; announce is given each.
type input struct {
	name     string
	file     *os.File
	announce func(message []byte, notify func(string))
}

// Open starts to listen. Inputs that this process may not have are among the errors; the Host is there all the same.
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

// Devices reports whether the kernel's events of devices, modules, CPUs and memory are heard: it sends them only to those
// who listen in the initial user namespace (uevent_net_broadcast_untagged).
func (h *Host) Devices() bool {
	return initialUserNamespace() && slices.ContainsFunc(h.inputs, func(in input) bool { return in.name == kernelEvents })
}

// Covered returns the sources of a host of which every change is heard, so that they need no polling.
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

// initialUserNamespace reports whether user IDs are those of the machine: all of them map to themselves, see
// user_namespaces(7).
func initialUserNamespace() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(data)), " ") == "0 0 4294967295"
}

// SameNetwork reports whether this process lives in the network namespace whose interfaces the host shows: both have the
// same. A pod without the host's network has a loopback and an eth0 of its own and is told nothing of other links.
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
			continue // a file of the bonding driver, or gone meanwhile
		}
		if index[name] != number {
			return false
		}
		matched++
	}
	return matched == len(own)
}

// Run calls notify with the name of a source for each event, from several goroutines, until ctx is done. It returns after
// they have ended, and closes the Host.
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
			notify(Everything) // the kernel could not keep all messages for us
		case err != nil:
			return // closed
		default:
			in.announce(buffer[:n], notify)
		}
	}
}

// netlink returns a socket that receives what is sent to the given groups. Its reads go through the runtime's poller.
func netlink(name string, protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// The larger buffer needs a privilege; without it the default one may overflow, which is noticed.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	return os.NewFile(uintptr(fd), name), nil
}

// isLinkMessage reports whether a route netlink message says that a link came, went or changed.
func isLinkMessage(m []byte) bool {
	if len(m) < unix.SizeofNlMsghdr {
		return false
	}
	kind := binary.NativeEndian.Uint16(m[4:])
	return kind == unix.RTM_NEWLINK || kind == unix.RTM_DELLINK
}
