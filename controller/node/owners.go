package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/desired"
)

// owners knows the objects that give keys, and the record of which have given which. It is safe for concurrent use.
type owners struct {
	registry *assembly.Registry
	settings string                             // that outcomes depend on
	object   func(name string) *assembly.Object // assembled state of an object; nil if there is none
	// confirm checks with the API server that the object with a name and UID does not exist.
	confirm func(ctx context.Context, name, uid string) error
	// vanished reports whether such an object was deleted with its definition. Suspended reports whether the rules of an object are unknown
	// because of one.
	vanished    func(name, uid string) bool
	suspended   func() bool
	definitions *follow.Definitions
	book        *provenance.Book

	beginning sync.Mutex
	leads     sync.Once // set with the first pass

	mu     sync.Mutex
	active *desired.Active // of the last program
	// features is the UID of the definition of NodeFeatures; returning is until when they may be published again after it was another one, and
	// settled the last UID for which that has passed, which the record keeps for the next process.
	features, settled types.UID
	returning         time.Time
}

// keep opens the record, in a cluster with as many Nodes as the function says.
func (g *owners) keep(store *provenance.Store, nodes func(context.Context) int) {
	g.book = provenance.NewBook(store, provenance.Fleet{
		Nodes: nodes,
		Objects: func() (int64, map[string]provenance.Owner) {
			linked := g.registry.Program()
			return linked.Generation, g.of(linked).Owners
		},
		State: func(by provenance.Owner) provenance.State { return g.state(g.of(g.registry.Program()), by) },
		Definitions: func() map[string]string {
			out := map[string]string{}
			for name, d := range g.definitions.All() {
				if d.UID != "" && name != definition.Features {
					out[name] = string(d.UID)
				}
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.settled != "" {
				out[definition.Features] = string(g.settled)
			}
			return out
		},
	})
}

// of returns the objects of a program. They are computed once per program.
func (g *owners) of(linked *assembly.Linked) *desired.Active {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == nil || g.active.Generation != linked.Generation {
		g.active = desired.NewActive(linked.Generation, linked.Program, g.settings)
	}
	return g.active
}

// states returns a function for one pass over a node, which returns the state of an object that is not among the active ones. An object keeps
// its state for the whole pass: the evidence that the pass asked for is about what it has found first.
func (g *owners) states(active *desired.Active) func(provenance.Owner) provenance.State {
	found := map[string]provenance.State{}
	return func(by provenance.Owner) provenance.State {
		state, ok := found[by.ID]
		if !ok {
			state = g.state(active, by)
			found[by.ID] = state
		}
		return state
	}
}

// state returns the state of an object that is not among the active ones. It waits for rules that are about to become active, of this object
// or of another one of its name: they may give what it gave.
func (g *owners) state(active *desired.Active, by provenance.Owner) provenance.State {
	o := g.object(by.Name)
	if o != nil && o.Set != nil {
		if _, linked := active.Owners[string(o.UID)]; !linked {
			return provenance.Waiting
		}
	}
	switch {
	case o != nil && string(o.UID) != by.ID && o.Suspended():
		return provenance.Waiting // it may be the same, created again with its definition
	case o == nil || string(o.UID) != by.ID:
		return g.absent(by, o == nil)
	case o.Suspended():
		return provenance.Waiting
	case !o.Settled():
		return provenance.Unsettled
	}
	return provenance.Off
}

// absent returns the state of an object that does not exist, which the API server has confirmed when it was removed or in begin. None is set
// if there is no other object of its name.
func (g *owners) absent(by provenance.Owner, none bool) provenance.State {
	if strings.Contains(by.Name, ":") {
		return provenance.Gone // not an object in the API server
	}
	kind := compile.KindOf(by.Name)
	d := g.definitions.Of(kind)
	switch past := g.book.Past(); {
	case d.State == definition.Absent:
		return provenance.Waiting
	case !none:
		return provenance.Gone // a user has created the other one
	case g.vanished(by.Name, by.ID):
		return provenance.Vanished
	case past != nil && past.Objects[by.ID] != nil && past.Definitions[kind] != "" && d.UID != "" && past.Definitions[kind] != string(d.UID):
		return provenance.Vanished
	}
	return provenance.Gone
}

// begin starts the pace of evictions and reads the record before the first pass. An object that has given keys and is not active could be
// missing only in the cache, which can lack it or have an earlier one of its name, so begin asks the API server.
func (g *owners) begin(ctx context.Context, gate *budget.Gate) error {
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
