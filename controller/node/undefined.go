package node

import (
	"context"
	"time"

	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/definition"
)

// undefined returns whether NodeFeatures are unknown because of their definition. A definition that is not the one under which the record was
// written was created after all NodeFeatures had been deleted.
func (g *owners) undefined(now time.Time, grace time.Duration) decide.Undefined {
	d := g.definitions.Of(definition.Features)
	if d.State == definition.Absent {
		return decide.Undefined{Absent: true}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.UID == "" {
		return decide.Undefined{}
	}
	if before := g.features; before != d.UID {
		g.features = d.UID
		past := g.book.Past()
		if before != "" || past != nil && past.Definitions[definition.Features] != "" && past.Definitions[definition.Features] != string(d.UID) {
			g.returning = now.Add(grace)
		}
	}
	if !g.returning.After(now) {
		g.settled = d.UID
	}
	return decide.Undefined{Returning: max(0, g.returning.Sub(now))}
}

// featuresVanished reads whether the NodeFeatures that the cache lacks were deleted with their definition. The two watches have no order, and a
// definition that cannot be watched is read every few seconds: until then an object that is gone looks like one that its publisher deleted.
func (g *owners) featuresVanished(ctx context.Context) (bool, error) {
	return g.definitions.Vanished(ctx, definition.Features, g.definitions.Of(definition.Features).UID)
}
