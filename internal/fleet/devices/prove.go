package devices

import (
	"context"
	"errors"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/rules/facts"
)

// ErrStale is returned if the API server has other slices than those in memory.
var ErrStale = errors.New("the ResourceSlices in memory are not those of the API server; retrying")

// Prove lists the slices of a node in the API server, and returns the features of a State that they give, without anything that the cache
// and the interner hold. A pool that is held counts as it was last complete, if the API server does not have all of it either. The error is
// ErrStale if the API server has other versions of the slices than this process has now, or if the State is older than those.
func (d *Devices) Prove(ctx context.Context, node string, s State) (*facts.Facts, error) {
	if d == nil || s.Facts == nil || d.opt.Client == nil {
		return s.Facts, nil
	}
	live := &resourcev1.ResourceSliceList{}
	if err := d.opt.Client.List(ctx, live, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: node}); err != nil {
		return nil, err
	}
	taints, err := d.liveTaints(ctx)
	if err != nil {
		return nil, err
	}
	versions, stored := map[string]string{}, map[string]facts.Slice{}
	for i := range live.Items {
		if slice, of := resourceslice.Of(&live.Items[i], nil); of == node && d.opt.Counts(slice.Driver) {
			versions[live.Items[i].Name], stored[live.Items[i].Name] = live.Items[i].ResourceVersion, slice
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.nodes[node]
	if m == nil || m.facts != s.Facts || !maps.EqualFunc(versions, m.slices, func(version string, _ facts.Slice) bool { return version != "" }) {
		return nil, ErrStale
	}
	for name, version := range versions {
		if d.slices[name].version != version {
			return nil, ErrStale
		}
	}
	pools := facts.Pools((&remembered{slices: stored}).sorted())
	for _, held := range m.listed {
		i := slices.IndexFunc(pools, func(p facts.Pool) bool { return compare(p, held) == 0 })
		switch {
		case held.Complete || i >= 0 && pools[i].Complete:
		case i >= 0:
			pools[i] = held
		default:
			pools = append(pools, held)
		}
	}
	slices.SortFunc(pools, compare)
	return facts.FromPools(pools, taints, nil), nil
}
