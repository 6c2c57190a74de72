// Package network discovers network interfaces.
package network

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "network"

// Features of the source.
const (
	// DeviceFeature lists the interfaces of physical devices.
	DeviceFeature = "network.device"
	// VirtualFeature lists the others: loopback, bridges, bonds, tunnels, veth pairs.
	VirtualFeature = "network.virtual"
)

// classDir contains all interfaces of the network namespace, see Documentation/ABI/testing/sysfs-class-net.
const classDir = "sys/class/net"

// Source discovers network interfaces.
type Source struct {
	dirs map[string]string // by interface name: directory without links, from the last discovery
}

// New returns the source.
func New() *Source { return &Source{} }

// Name returns "network".
func (*Source) Name() string { return Name }

// Discover reads the interfaces of the network namespace in which sysfs was mounted.
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
		if errors.Is(err, host.ErrNotMounted) {
			return discovery.NewResult(), err
		}
		if err != nil {
			r.Problem(err)
			continue // it could be in the wrong list
		}

		iface := map[string]string{"name": host.Clean([]byte(name))}
		for _, err := range slices.Concat(
			discovery.ReadOptional(h, dir, iface, "operstate"),
			discovery.ReadNumbers(h, dir, iface, "speed", "mtu"),
		) {
			r.Problem(err)
		}
		if !physical {
			virtual = append(virtual, iface)
			continue
		}
		for _, err := range discovery.ReadNumbers(h, h.Resolve(dir+"/device"), iface, "sriov_numvfs", "sriov_totalvfs") {
			r.Problem(err)
		}
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

// Glance lists the interfaces and reads their link state, for a worker that receives events for devices but not for links, since it
// runs in a separate network namespace, as pods do. A changed MTU is left to the next discovery.
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
		// Without a link there is no speed, and querying the driver for it can be slow.
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

// bondingMasters is a file of the bonding driver in the same directory.
const bondingMasters = "bonding_masters"

func positive(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}
