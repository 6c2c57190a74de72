package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Features that come from the ResourceSlices of a node, which DRA drivers publish (KEP-4381).
const (
	// DeviceFeature lists the devices.
	DeviceFeature = "dra.device"
	// DriverFeature lists the drivers, and whether all that they have announced is known.
	DriverFeature = "dra.driver"
)

// DevicePrefix begins the names of features that come from ResourceSlices.
const DevicePrefix = "dra."

// MaxDevices is the maximum number of DRA devices of a node that rules read: 16 GPUs in seven partitions each, and the functions of as
// many network cards. The smallest pools of a node are read first; a pool that exceeds the limit counts as incomplete.
const MaxDevices = 2048

// IsDevices reports whether the feature with this lower-case name comes from ResourceSlices.
func IsDevices(feature string) bool { return strings.HasPrefix(feature, DevicePrefix) }

// HealthPrefix begins the names of features about faults of a node.
const HealthPrefix = "health."

// IsHealth reports whether the feature with this lower-case name says that something is wrong with a node: what rules do because of it has a
// budget.
func IsHealth(feature string) bool {
	return strings.HasPrefix(feature, HealthPrefix) || feature == ConditionFeature
}

// FromCluster reports whether the feature with this lower-case name comes from objects of the cluster and not from a NodeFeature.
func FromCluster(feature string) bool { return IsKubernetes(feature) || IsDevices(feature) }

// Slice is the part of a ResourceSlice of one node that rules read.
type Slice struct {
	Driver, Pool string
	// Generation counts the versions of the pool. Total is the number of slices that the pool has in this generation.
	Generation, Total int64
	// Devices are the devices, with the elements of DeviceFeature except for the names of driver and pool.
	Devices *Instances
	// Spread is set if the devices of the slice name their nodes, and other slices of the pool may have none of this node. Those are one
	// Slice without Devices: Elsewhere is their number.
	Spread    bool
	Elsewhere int64
}

// Pool is what is known of a pool of devices.
type Pool struct {
	Driver, Name string
	// Complete is set if all slices of the pool's last generation are known. Otherwise its devices are not: there are none, or those that
	// the caller has kept from an earlier generation.
	Complete bool
	Devices  []*Instances
	// Old is the number of slices of older generations that are of this node alone. TooMany is that of the others if all are known, and the
	// node would have more than MaxDevices with them.
	Old, TooMany int
}

// overLimitElement names the pools of a driver that are left out because of MaxDevices.
const overLimitElement = "over_limit"

// Pools returns the pools of slices, sorted by driver and name. The order of the devices is that of the slices.
func Pools(list []Slice) []Pool {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Slice) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Generation, a.Generation))
	})
	var pools []Pool
	var known []int // the pools of which all slices are known
	for len(list) > 0 {
		newest := list[0]
		n, have := 0, int64(0)
		pool := Pool{Driver: newest.Driver, Name: newest.Pool}
		for ; n < len(list) && list[n].Driver == newest.Driver && list[n].Pool == newest.Pool; n++ {
			switch s := &list[n]; {
			case s.Generation != newest.Generation && !s.Spread:
				pool.Old++
			case s.Generation != newest.Generation:
			case s.Devices == nil:
				have += s.Elsewhere
			default:
				pool.Devices = append(pool.Devices, s.Devices)
				have++
			}
		}
		list = list[n:]
		if have == newest.Total {
			known = append(known, len(pools))
		} else {
			pool.Devices = nil
		}
		pools = append(pools, pool)
	}
	// The smallest ones first: a large pool does not displace others.
	slices.SortStableFunc(known, func(a, b int) int { return cmp.Compare(pools[a].size(), pools[b].size()) })
	devices := 0
	for _, i := range known {
		p := &pools[i]
		if n := p.size(); devices+n <= MaxDevices {
			p.Complete, devices = true, devices+n
		} else {
			p.TooMany, p.Devices = len(p.Devices), nil
		}
	}
	return pools
}

// size returns the number of devices.
func (p *Pool) size() (n int) {
	for _, s := range p.Devices {
		n += s.Len()
	}
	return n
}

// FromPools returns the facts of pools that are sorted by driver and name, with the taints of rules. Without pools, the features are there
// and empty: the node has no devices.
func FromPools(pools []Pool, taints []TaintRule, in *Interner) *Facts {
	type driver struct {
		devices, pools int
		complete       bool
		over           []string
	}
	devices, drivers, order := []map[string]string{}, map[string]*driver{}, []string{}
	for _, p := range pools {
		d := drivers[p.Driver]
		if d == nil {
			d = &driver{complete: true}
			drivers[p.Driver], order = d, append(order, p.Driver)
		}
		d.pools++
		d.complete = d.complete && p.Complete
		if p.TooMany > 0 {
			d.over = append(d.over, p.Name)
		}
		ofPool := TaintRulesOf(taints, p.Driver, p.Name)
		for _, s := range p.Devices {
			for _, attributes := range s.Select(nil) {
				attributes["driver.name"], attributes["pool.name"] = p.Driver, p.Name
				addTaints(attributes, ofPool)
				devices = append(devices, attributes)
				d.devices++
			}
		}
	}
	list := make([]map[string]string, 0, len(order))
	for _, name := range order {
		d := drivers[name]
		attributes := map[string]string{
			"name": name, "devices": strconv.Itoa(d.devices), "pools": strconv.Itoa(d.pools), "complete": strconv.FormatBool(d.complete),
		}
		if len(d.over) > 0 {
			attributes[overLimitElement] = strings.Join(d.over, ",")
		}
		list = append(list, attributes)
	}
	b := builder{}
	b.at(DeviceFeature).Instances = instancesFromMaps(devices, in)
	b.at(DriverFeature).Instances = instancesFromMaps(list, in)
	return b.build(in)
}

// DevicesOver describes the pools of devices that are left out because of MaxDevices; empty: there are none.
func (f *Facts) DevicesOver() string {
	if f == nil || f.Feature(DriverFeature) == nil {
		return ""
	}
	var list []string
	drivers := f.Feature(DriverFeature)
	for i := range drivers.Instances.Len() {
		if over, _ := drivers.Instances.Get(i, overLimitElement); over != "" {
			name, _ := drivers.Instances.Get(i, "name")
			list = append(list, fmt.Sprintf("of the DRA driver %s: %s", name, over))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("rules read at most %d devices of a node, and none of these pools: %s", MaxDevices, strings.Join(list, "; "))
}

// DevicesComplete reports whether all devices of a node are known: none of its drivers has published only some of them.
func (f *Facts) DevicesComplete() bool {
	if f == nil {
		return false
	}
	drivers := f.Feature(DriverFeature)
	for i := range drivers.Instances.Len() {
		if value, _ := drivers.Instances.Get(i, "complete"); value != "true" {
			return false
		}
	}
	return true
}
