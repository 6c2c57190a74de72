package node

import (
	"context"
	"errors"
	"time"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// contested leaves keys alone that another client keeps changing back.
func (r *Reconciler) contested(ctx context.Context, p *plan.Plan, j *judge) (*plan.Plan, time.Duration) {
	known, now, again := j.known, r.clock.Now(), time.Duration(0)
	known.fixing = nil
	var held []heldStep
	p = p.Without(func(s plan.Step) bool {
		undone := known.undone(s)
		wait, contested := known.contests(s, now)
		switch {
		case contested:
			again = sooner(again, wait)
			held = append(held, heldStep{s, now.Add(wait)})
		case undone || known.corrects(s):
			known.fixing = append(known.fixing, s)
		}
		return contested
	})
	r.reportHeld(ctx, j, hold.Contested, whyContested, held, name)
	return p, again
}

// contests reports whether another client keeps changing the key of a step back, and how long to leave it alone.
func (m *memo) contests(s plan.Step, now time.Time) (time.Duration, bool) {
	if !m.corrections.Any() {
		return 0, false
	}
	return m.corrections.Held(name(s), s.New, now)
}

// corrects reports whether a step writes what was recently corrected.
func (m *memo) corrects(s plan.Step) bool {
	return m.corrections.Any() && m.corrections.About(name(s), s.New)
}

// undone reports whether a step restores a value that this process wrote: the desired value is unchanged, and the Node's annotation
// still lists the key. A kubelet that starts resets unknown resources to 0, which does not count, however often it starts.
func (m *memo) undone(s plan.Step) bool {
	if s.Kind == keys.Resource && s.Old == "0" {
		return false
	}
	if s.Mark || !s.Recorded() || s.Op != plan.Add && s.Op != plan.Change || m.unsure || m.left[name(s)] {
		return false
	}
	return m.given.Has(s.Kind, s.Key, s.New)
}

// passed records the result of a pass: p is the part of the desired plan that was carried out, or attempted. A pass that ends with
// a conflict wrote none of it, so that what is known of the Node remains.
func (m *memo) passed(wished, p *plan.Plan, now time.Time, err error) {
	if errors.Is(err, errConflict) {
		return
	}
	m.unsure, m.left = err != nil, nil
	if err != nil {
		return
	}
	if len(p.Steps) < len(wished.Steps) {
		m.left = map[string]bool{}
		for _, s := range wished.Steps {
			m.left[name(s)] = true
		}
		for _, s := range p.Steps {
			delete(m.left, name(s))
		}
	}
	m.corrections.Expire(now)
	for _, s := range m.fixing {
		m.corrections.Add(name(s), s.New, now)
	}
}
