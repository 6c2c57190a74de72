package facts

import (
	"cmp"
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
// many network cards. A pool that exceeds it counts as incomplete.
const MaxDevices = 2048

// IsDevices reports whether the feature with this lower-case name comes from ResourceSlices.
func IsDevices(feature string) bool { return strings.HasPrefix(feature, DevicePrefix) }

// FromCluster reports whether the feature with this lower-case name comes from objects of the cluster and not from a NodeFeature.
func FromCluster(feature string) bool { return IsKubernetes(feature) || IsDevices(feature) }

// Slice is the part of a ResourceSlice of one node that rules read.
type Slice struct {
	Driver, Pool string
	// Generation counts the versions of the pool. Total is the number of slices that the pool has in this generation.
	Generation, Total int64
	// Devices are the devices, with the elements of DeviceFeature except for the names of driver and pool.
	Devices *Instances
}

// Pool is what is known of a pool of devices.
type Pool struct {
	Driver, Name string
	// Complete is set if all slices of the pool's last generation are known. Otherwise its devices are not: there are none, or those that
	// the caller has kept from an earlier generation.
	Complete bool
	Devices  []*Instances
	// Old is the number of slices of older generations. TooMany is that of the others if all are known, and the node would have more than
	// MaxDevices with them.
	Old, TooMany int
}

// Pools returns the pools of slices, sorted by driver and name. The order of the devices is that of the slices.
func Pools(list []Slice) []Pool {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Slice) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Generation, a.Generation))
	})
	var pools []Pool
	devices := 0
	for len(list) > 0 {
		newest := list[0]
		n := 0
		pool := Pool{Driver: newest.Driver, Name: newest.Pool}
		for ; n < len(list) && list[n].Driver == newest.Driver && list[n].Pool == newest.Pool; n++ {
			if list[n].Generation == newest.Generation {
				pool.Devices = append(pool.Devices, list[n].Devices)
			} else {
				pool.Old++
			}
		}
		list = list[n:]
		count := 0
		for _, s := range pool.Devices {
			count += s.Len()
		}
		known := int64(len(pool.Devices)) == newest.Total
		switch {
		case known && devices+count <= MaxDevices:
			pool.Complete, devices = true, devices+count
		case known:
			pool.TooMany, pool.Devices = len(pool.Devices), nil
		default:
			pool.Devices = nil
		}
		pools = append(pools, pool)
	}
	return pools
}

// FromPools returns the facts of pools that are sorted by driver and name, with the taints of rules. Without pools, the features are there
// and empty: the node has no devices.
func FromPools(pools []Pool, taints []TaintRule, in *Interner) *Facts {
	type driver struct {
		devices, pools int
		complete       bool
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
		list = append(list, map[string]string{
			"name": name, "devices": strconv.Itoa(d.devices), "pools": strconv.Itoa(d.pools), "complete": strconv.FormatBool(d.complete),
		})
	}
	b := builder{}
	b.at(DeviceFeature).Instances = instancesFromMaps(devices, in)
	b.at(DriverFeature).Instances = instancesFromMaps(list, in)
	return b.build(in)
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
