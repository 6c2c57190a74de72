package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// A key that somebody else changes again and again is put right contestLimit times within contestWindow and then left alone for
// the rest of it: two writers that disagree would move pods, and load the API server, for as long as both run. A person who
// slips, and a kubelet that starts, are put right at once.
const (
	contestLimit  = 3
	contestWindow = time.Hour
)

// contest is when a key was put right lately, to which value.
type contest struct {
	value string
	times []time.Time // at most contestLimit
}

// about reports whether the value of a step is what the contest is about.
func (c contest) about(s plan.Step) bool { return len(c.times) > 0 && c.value == s.New }

// settle leaves the keys alone over which somebody else contends.
func (r *Reconciler) settle(node *corev1.Node, p *plan.Plan, known *memo, again *time.Duration) *plan.Plan {
	known.fixing = nil
	now := r.clock.Now()
	return p.Without(func(s plan.Step) bool {
		undone := known.undone(s)
		wait, contested := known.contested(s, now)
		switch {
		case contested:
			*again = sooner(*again, wait)
			if undone {
				r.events.Eventf(node, corev1.EventTypeWarning, "KeyContested",
					"somebody else keeps changing the %s %s; it is left alone for %s", s.Kind, s.Key, wait.Round(time.Second))
			}
		case undone || known.contests[name(s)].about(s):
			known.fixing = append(known.fixing, s)
		}
		return contested
	})
}

// undone reports whether a step puts right what this process knows to have been right: nothing about the wish has changed, and
// the record on the Node still names the key. A kubelet that starts sets resources it does not know to 0, which is no
// disagreement, however often it starts.
func (m *memo) undone(s plan.Step) bool {
	if s.Kind == plan.Resource && s.Old == "0" {
		return false
	}
	if s.Mark || !s.Recorded() || s.Op != plan.Add && s.Op != plan.Change || m.outcome == nil || m.unsure || m.left[name(s)] {
		return false
	}
	value, ok := wanted(m.outcome, s)
	return ok && value == s.New
}

// wanted is what an outcome wants of the key of a step.
func wanted(o *rules.Outcome, s plan.Step) (value string, ok bool) {
	switch s.Kind {
	case plan.Label:
		value, ok = o.Labels()[s.Key]
	case plan.Annotation:
		value, ok = o.Annotations()[s.Key]
	case plan.Resource:
		value, ok = o.ExtendedResources()[s.Key]
	case plan.Taint:
		i := slices.IndexFunc(o.Taints(), func(t corev1.Taint) bool { return t.Key+":"+string(t.Effect) == s.Key })
		if ok = i >= 0; ok {
			value = o.Taints()[i].Value
		}
	}
	return value, ok
}

// contested reports whether a key has been put right often enough, and for how long to leave it alone. A new value is no part
// of the contest.
func (m *memo) contested(s plan.Step, now time.Time) (time.Duration, bool) {
	c := m.contests[name(s)]
	if !c.about(s) || len(c.times) < contestLimit {
		return 0, false
	}
	left := contestWindow - now.Sub(c.times[0])
	return left, left > 0
}

// passed remembers what became of a wish: p was carried out, or tried.
func (m *memo) passed(wished, p *plan.Plan, now time.Time, err error) {
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
	for key, c := range m.contests {
		if now.Sub(c.times[len(c.times)-1]) > contestWindow {
			delete(m.contests, key)
		}
	}
	for _, s := range m.fixing {
		c := m.contests[name(s)]
		if !c.about(s) {
			c = contest{value: s.New}
		}
		c.times = append(c.times, now)
		c.times = c.times[max(0, len(c.times)-contestLimit):]
		if m.contests == nil {
			m.contests = map[string]contest{}
		}
		m.contests[name(s)] = c
	}
}
