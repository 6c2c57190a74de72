package numa

import (
	"fmt"
	"strconv"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/topology"
)

// defaultMaxZones is the maximum number of zones of the plug-in unless the topology says another.
const defaultMaxZones = 8

// Problem returns why the plug-in places no pods, or none of some kind, on a node, and what to change; empty strings if it does.
func Problem(t *v1alpha2.NodeResourceTopology) (problem, fix string) {
	limit := defaultMaxZones
	if n, err := strconv.Atoi(Attribute(t, topology.AttributeMaxNodes)); err == nil {
		limit = n
	}
	if len(t.Zones) > limit {
		return fmt.Sprintf("it has %d zones, and the scheduler plug-in handles %d", len(t.Zones), limit),
			"Set topologyManagerPolicyOptions max-allowable-numa-nodes of the kubelet"
	}
	if Attribute(t, topology.AttributePolicy) != singleNUMA {
		return "", ""
	}
	for _, need := range []struct{ resource, setting, value string }{
		{"cpu", "cpuManagerPolicy", "static"}, {"memory", "memoryManagerPolicy", "Static"},
	} {
		has := false
		for i := range t.Zones {
			r := Find(&t.Zones[i], need.resource)
			has = has || r != nil && !r.Allocatable.IsZero()
		}
		if !has {
			return fmt.Sprintf("topologyManagerPolicy is %s, and no zone has allocatable %s: the scheduler plug-in places no guaranteed pod that requests it",
					singleNUMA, need.resource),
				fmt.Sprintf("Set %s: %s in the kubelet's configuration", need.setting, need.value)
		}
	}
	return "", ""
}
