package resourceslice

import (
	"github.com/assay-project/assay/rules/facts"
)

// PoolKey identifies a pool of devices.
type PoolKey struct{ Driver, Name string }

// Spread is the slices of a pool that are not of one node: each of their devices may name one, and some may have none of a node's devices.
type Spread struct {
	// Generation is the newest one. Total and Slices are the numbers of slices that the pool has in it, and that are known.
	Generation, Total, Slices int64
	// Old is the number of slices of older generations.
	Old int
}

// Add counts a slice of the pool.
func (p *Spread) Add(s facts.Slice) {
	switch {
	case s.Generation < p.Generation:
		p.Old++
	case s.Generation > p.Generation:
		*p = Spread{Generation: s.Generation, Total: s.Total, Slices: 1, Old: p.Old + int(p.Slices)}
	default:
		p.Total = s.Total
		p.Slices++
	}
}

// Complete reports whether all slices are known.
func (p *Spread) Complete() bool { return p.Slices == p.Total }

// Spreads are pools by name.
type Spreads map[PoolKey]*Spread

// Add counts a slice, unless it is of one node.
func (l Spreads) Add(s *Slice) {
	if !s.Spread {
		return
	}
	key := PoolKey{s.Driver, s.Pool}
	if l[key] == nil {
		l[key] = &Spread{}
	}
	l[key].Add(s.Slice)
}

// Complete adds to the slices of a node what counts for those of their pools that have none of its devices.
func (l Spreads) Complete(list []facts.Slice) []facts.Slice {
	if len(l) == 0 {
		return list
	}
	own := map[PoolKey]int64{} // the slices of the newest generation that have devices of the node
	for _, s := range list {
		key, n := PoolKey{s.Driver, s.Pool}, int64(0)
		if l[key] == nil {
			continue
		}
		if s.Spread && s.Generation == l[key].Generation {
			n = 1
		}
		own[key] += n
	}
	for key, n := range own {
		if p := l[key]; p.Slices > n {
			list = append(list, facts.Slice{
				Driver: key.Driver, Pool: key.Name, Generation: p.Generation, Total: p.Total, Spread: true, Elsewhere: p.Slices - n,
			})
		}
	}
	return list
}
