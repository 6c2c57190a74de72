package devices

import (
	"github.com/assay-project/assay/rules/facts"
)

// Reasons why no rule reads a ResourceSlice.
const (
	IgnoredShared     = "SeveralNodes"  // it describes only devices that several nodes reach
	IgnoredDriver     = "Driver"        // the settings exclude its driver
	IgnoredGeneration = "OldGeneration" // there are slices of a newer generation of its pool
	IgnoredLimit      = "TooMany"       // its pool is complete, and the node would have more than facts.MaxDevices
)

// Ignored returns the number of ResourceSlices that no rule reads, by reason.
func (d *Devices) Ignored() map[string]int {
	out := map[string]int{IgnoredShared: 0, IgnoredDriver: 0, IgnoredGeneration: 0, IgnoredLimit: 0}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, why := range d.ignore {
		out[why]++
	}
	for _, p := range d.spreads {
		out[IgnoredGeneration] += p.Old
	}
	for _, m := range d.nodes {
		for _, p := range facts.Pools(d.spreads.Complete(m.sorted())) {
			out[IgnoredGeneration] += p.Old
			out[IgnoredLimit] += p.TooMany
		}
	}
	return out
}
