package node

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
)

// givers knows the objects that give keys, and the record of which have given which. It is safe for concurrent use.
type givers struct {
	registry *assembly.Registry
	settings string                             // that outcomes depend on
	object   func(name string) *assembly.Object // assembled state of an object; nil if there is none
	// confirm checks with the API server that the object with a name and UID does not exist.
	confirm func(ctx context.Context, name, uid string) error
	book    *provenance.Book

	beginning sync.Mutex
	leads     sync.Once // set with the first pass

	mu     sync.Mutex
	active *decide.Active // of the last program
}

// keep opens the record, in a cluster with as many Nodes as the function says.
func (g *givers) keep(store *provenance.Store, nodes func(context.Context) int) {
	g.book = provenance.NewBook(store, provenance.Fleet{
		Nodes: nodes,
		Objects: func() (int64, map[string]provenance.Giver) {
			linked := g.registry.Program()
			return linked.Generation, g.of(linked).Givers
		},
		State: g.state,
	})
}

// of returns the objects of a program. They are computed once per program.
func (g *givers) of(linked *assembly.Linked) *decide.Active {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == nil || g.active.Generation != linked.Generation {
		g.active = decide.NewActive(linked.Generation, linked.Program, g.settings)
	}
	return g.active
}

// state returns the state of an object that is not active.
func (g *givers) state(by provenance.Giver) provenance.State {
	o := g.object(by.Name)
	switch {
	case o == nil || string(o.UID) != by.ID:
		return provenance.Gone // the API server has confirmed it, when the object was removed or in begin
	case o.Set != nil || !o.Settled():
		return provenance.Unsettled // it has a set and is about to be linked
	}
	return provenance.Off
}

// begin starts the pace of evictions and reads the record before the first pass. An object that has given keys and is not active could be
// missing only in the cache, which can lack it or have an earlier one of its name, so begin asks the API server.
func (g *givers) begin(ctx context.Context, gate *budget.Gate) error {
	g.beginning.Lock()
	defer g.beginning.Unlock()
	g.leads.Do(gate.Lead)
	absent, err := g.book.Load(ctx)
	if err != nil {
		return err
	}
	for _, by := range absent {
		if o := g.object(by.Name); o != nil && string(o.UID) == by.ID || strings.Contains(by.Name, ":") {
			continue // it exists, or it is not an object in the API server
		}
		if err := g.confirm(ctx, by.Name, by.ID); err != nil {
			g.book.Unload()
			return fmt.Errorf("confirm that NodeFeatureRule %s has been deleted: %w", by.Name, err)
		}
	}
	return nil
}
