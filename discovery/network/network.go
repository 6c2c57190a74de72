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
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name is "network".
func (Source) Name() string { return Name }

// Discover reads the interfaces of the network namespace that sysfs was mounted in.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, classDir)
	if err != nil {
		return r, err
	}
	devices, virtual := []map[string]string{}, []map[string]string{}
	for _, name := range names {
		if name == "bonding_masters" {
			continue // a file of the bonding driver among the interfaces
		}
		dir := h.Resolve(classDir + "/" + name)
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

func readInto(r *discovery.Result, h host.Host, dir string, iface map[string]string, names ...string) {
	for _, err := range discovery.ReadOptional(h, dir, iface, names...) {
		r.Problem(err)
	}
}

func positive(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}
