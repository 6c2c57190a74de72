// Package rdma discovers InfiniBand, RoCE and iWARP devices.
package rdma

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "rdma"

// DeviceFeature lists the ports of RDMA devices: a program uses a device and a port.
const DeviceFeature = "rdma.device"

// classDir contains all RDMA devices, see Documentation/ABI/stable/sysfs-class-infiniband.
const classDir = "sys/class/infiniband"

// Source discovers RDMA devices.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "rdma".
func (Source) Name() string { return Name }

// Discover reads all ports of all devices, in the order of their names. It omits GUIDs, which are identifying.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, classDir)
	if err != nil {
		return r, err
	}
	instances := []map[string]string{}
	for _, name := range names {
		dir := h.Resolve(classDir + "/" + name)
		ports, err := h.ReadDir(dir + "/ports")
		r.Problem(err)
		for _, port := range ports {
			instances = append(instances, readPort(&r, h, dir, name, port))
		}
	}
	r.Instances(DeviceFeature, instances)
	return r, nil
}

func readPort(r *discovery.Result, h host.Host, dir, name, port string) map[string]string {
	p := map[string]string{"name": host.Clean([]byte(name)), "port": host.Clean([]byte(port))}
	raw := map[string]string{}
	for _, err := range slices.Concat(
		discovery.ReadOptional(h, dir, raw, "node_type", "fw_ver", "board_id"),
		discovery.NUMANode(h, dir+"/device", p),
	) {
		r.Problem(err)
	}
	for _, err := range discovery.ReadOptional(h, dir+"/ports/"+port, raw, "link_layer", "state", "rate") {
		r.Problem(err)
	}
	set := func(attribute, value string) {
		if value != "" {
			p[attribute] = value
		}
	}
	for name, file := range map[string]string{"node_type": dir + "/node_type", "state": dir + "/ports/" + port + "/state"} {
		if v, ok := raw[name]; ok {
			value, ok := afterColon(v)
			if !ok {
				r.Problem(discovery.NotA("number with a name, such as 4: ACTIVE", file, v))
			}
			set(name, value)
		}
	}
	if p["state"] != "" {
		p["state"] = strings.ToLower(p["state"])
	}
	set("link_layer", raw["link_layer"])
	set("fw_ver", raw["fw_ver"])
	set("board_id", raw["board_id"])
	set("speed", Speed(raw["rate"]))
	if rate, ok := raw["rate"]; ok && p["speed"] == "" {
		r.Problem(discovery.NotA("rate", dir+"/ports/"+port+"/rate", rate))
	}
	return p
}

// afterColon returns the name of an enumeration value that the kernel prints as "4: ACTIVE".
func afterColon(s string) (string, bool) {
	number, name, ok := strings.Cut(s, ":")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return "", false
	}
	return strings.TrimSpace(name), true
}

// Speed converts a rate as the kernel prints it, such as "100 Gb/sec (4X EDR)" or "2.5 Gb/sec (1X SDR)", to Mb/s, the unit used for
// network interfaces. It returns an empty string for other values.
func Speed(rate string) string {
	number, rest, _ := strings.Cut(rate, " ")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(rest, "Gb/sec") || !(gbps > 0 && gbps < 1e6) {
		return ""
	}
	return strconv.FormatFloat(gbps*1000, 'f', 0, 64)
}
