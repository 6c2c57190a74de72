package rule

import (
	"context"
	"errors"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
)

// acceptances stores what was accepted of each object, for the next process: only what was accepted while the definition was whole shows
// which objects have lost fields since. It runs on the leader.
type acceptances struct {
	rules   *compile.Rules
	store   *provenance.Store
	changed chan struct{} // holds an element if an object was compiled since the last write
}

// acceptDelay is how long changes are collected before they are written together.
const acceptDelay = time.Second

func (a *acceptances) note() {
	select {
	case a.changed <- struct{}{}:
	default: // a write is about to happen
	}
}

// Start implements manager.Runnable.
func (a *acceptances) Start(ctx context.Context) error {
	if err := a.rules.Registry().Wait(ctx); err != nil {
		return nil //nolint:nilerr // stopped
	}
	for {
		if err := a.write(ctx); err != nil && ctx.Err() == nil {
			if !errors.Is(err, provenance.ErrChanged) {
				logf.FromContext(ctx).Error(err, "Cannot store which rules were accepted; retrying")
			}
			a.note()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(acceptDelay):
		}
	}
}

func (a *acceptances) write(ctx context.Context) error {
	m, read, err := a.store.Read(ctx)
	if err != nil {
		return err
	}
	text := assembly.EncodeAccepted(a.rules.Accepted())
	if text == m.Data[assembly.AcceptedKey] || text == "{}" && m.UID == "" {
		return nil
	}
	return a.store.SetData(ctx, read, assembly.AcceptedKey, text)
}
