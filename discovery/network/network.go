// Package network discovers network interfaces.
package network

import (
	"context"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "network"

// Features of the source.
const (
	// DeviceFeature are the interfaces with a device behind them.
	DeviceFeature = "network.device"
	// VirtualFeature are the others: loopback, bridges, bonds, tunnels, veth pairs.
	VirtualFeature = "network.virtual"
)

// classDir lists all interfaces of the network namespace, see Documentation/ABI/testing/sysfs-class-net.
const classDir = "sys/class/net"

// Source discovers network interfaces.
type Source struct {
	dirs map[string]string // without links, by name of the interface, as they were found last
}

// New returns the source.
func New() *Source { return &Source{} }

// Name is "network".
func (*Source) Name() string { return Name }

// Discover reads the interfaces of the network namespace that sysfs was mounted in.
func (s *Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, classDir)
	if err != nil {
		return r, err
	}
	devices, virtual := []map[string]string{}, []map[string]string{}
	s.dirs = make(map[string]string, len(names))
	for _, name := range names {
		if name == bondingMasters {
			continue
		}
		dir := h.Resolve(classDir + "/" + name)
		s.dirs[name] = dir
		physical, err := h.Exists(dir + "/device")
		r.Problem(err)

		iface := map[string]string{"name": host.Clean([]byte(name))}
		readInto(&r, h, dir, iface, "operstate", "speed", "mtu")
		if !physical {
			virtual = append(virtual, iface)
			continue
		}
		readInto(&r, h, h.Resolve(dir+"/device"), iface, "sriov_numvfs", "sriov_totalvfs")
		devices = append(devices, iface)
		if positive(iface["sriov_totalvfs"]) {
			r.Labels["network-sriov.capable"] = "true"
		}
		if positive(iface["sriov_numvfs"]) {
			r.Labels["network-sriov.configured"] = "true"
		}
	}
	r.Instances(DeviceFeature, devices)
	r.Instances(VirtualFeature, virtual)
	return r, nil
}

// Glance looks which interfaces there are, and at their links. It is for a worker that hears of devices but not of links,
// since it lives in a network namespace of its own, as pods do. An MTU that is set is left to the next discovery.
func (s *Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, classDir)
	r.Problem(err)
	links := make(map[string]string, 2*len(names))
	for _, name := range names {
		if name == bondingMasters {
			continue
		}
		dir, known := s.dirs[name]
		if !known {
			return r, false
		}
		// What has no link has no speed either, and asking a driver for it may take a while.
		link := map[string]string{}
		discovery.ReadOptional(h, dir, link, "operstate")
		if link["operstate"] == "up" {
			discovery.ReadOptional(h, dir, link, "speed")
		}
		links[name] = link["operstate"] + " " + link["speed"]
	}
	r.Attributes(Name, links)
	return r, true
}

// bondingMasters is a file of the bonding driver among the interfaces.
const bondingMasters = "bonding_masters"

func readInto(r *discovery.Result, h host.Host, dir string, iface map[string]string, names ...string) {
	for _, err := range discovery.ReadOptional(h, dir, iface, names...) {
		r.Problem(err)
	}
}

func positive(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}
