package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// ueventGroup is the multicast group that the kernel itself sends to; udev's is 2.
	ueventGroup = 1
	// receiveBuffer holds a burst of events: a NIC that creates 126 functions sends about 1,000 of 300 bytes.
	receiveBuffer = 1 << 20
	// messageSize is larger than any message: a uevent has at most 2 KiB of fields, a link message a few KiB.
	messageSize = 32 << 10
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
	listen("kernel events", unix.NETLINK_KOBJECT_UEVENT, ueventGroup, func(m []byte, notify func(string)) {
		if source := ueventSource(m); source != "" {
			notify(source)
		}
	})
	listen("network links", unix.NETLINK_ROUTE, unix.RTMGRP_LINK, func(m []byte, notify func(string)) {
		if isLinkMessage(m) {
			notify("network")
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

// Devices reports whether the kernel's events of devices are heard.
func (h *Host) Devices() bool {
	for _, in := range h.inputs {
		if in.name == "kernel events" {
			return true
		}
	}
	return false
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
