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
	d.mu.Lock()
	names := []string{node}
	if len(d.spread) > 0 {
		names = append(names, "") // the slices that are not of one node
	}
	d.mu.Unlock()
	versions, own, spread := map[string]string{}, map[string]facts.Slice{}, resourceslice.Spreads{}
	for _, name := range names {
		live := &resourcev1.ResourceSliceList{}
		if err := d.opt.Client.List(ctx, live, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: name}); err != nil {
			return nil, err
		}
		for i := range live.Items {
			s := resourceslice.Read(&live.Items[i], nil)
			if !d.opt.Counts(s.Driver) {
				continue
			}
			spread.Add(&s)
			for _, p := range s.Parts {
				if p.Node == node {
					versions[live.Items[i].Name], own[live.Items[i].Name] = live.Items[i].ResourceVersion, s.Of(p)
				}
			}
		}
	}
	taints, err := d.liveTaints(ctx)
	if err != nil {
		return nil, err
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
	for _, p := range m.listed {
		key := resourceslice.PoolKey{Driver: p.Driver, Name: p.Name}
		if a, b := spread[key], d.spreads[key]; a != b && (a == nil || b == nil || *a != *b) {
			return nil, ErrStale
		}
	}
	pools := facts.Pools(spread.Complete((&remembered{slices: own}).sorted()))
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
