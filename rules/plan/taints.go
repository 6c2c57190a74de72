package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
)

// compareTaints plans the taints. The record lists key=value:effect, as in NFD.
func (p *Plan) compareTaints(want []corev1.Taint) {
	if !p.policy.Taints {
		want = nil
	}
	owned := map[string]corev1.Taint{}
	for _, t := range ParseTaints(p.state.Annotations[p.policy.Record.Taints()]) {
		if p.policy.mayOwn(keys.Taint, t.Key) {
			owned[keys.TaintName(t)] = t
		}
	}
	have := map[string]corev1.Taint{}
	for _, t := range p.state.Taints {
		have[keys.TaintName(t)] = t
	}
	wanted := map[string]bool{}
	for _, t := range want {
		key := keys.TaintName(t)
		if wanted[key] {
			continue
		}
		wanted[key] = true
		old, present := have[key]
		_, ours := owned[key]
		s := Step{Kind: keys.Taint, Key: key, Old: old.Value, New: t.Value, ownedBefore: ours, taint: t}
		s.Foreign = present && !ours
		switch {
		case s.Foreign && p.policy.KeepForeign:
			if old.Value != t.Value {
				s.Op = Change
			}
			p.Left = append(p.Left, s)
			continue
		case !present:
			s.Op = Add
		case old.Value != t.Value:
			s.Op = Change
		case !ours:
			s.Op = Adopt
		}
		p.own(keys.Taint, key, true)
		if s.Op != "" {
			p.Steps = append(p.Steps, s)
		}
	}
	for key, t := range owned {
		if wanted[key] {
			continue
		}
		old, present := have[key]
		s := Step{Kind: keys.Taint, Op: Remove, Key: key, Old: old.Value, ownedBefore: true, taint: t}
		if !present {
			s.Op = Forget
		}
		p.Steps = append(p.Steps, s)
	}
}

// WithoutTaint returns the plan that also removes all taints with a key, including those of other clients.
func (p *Plan) WithoutTaint(key string) *Plan {
	out := p.with(slices.Clone(p.Steps))
	for _, t := range p.state.Taints {
		if t.Key == key {
			out.Steps = append(out.Steps, Step{Kind: keys.Taint, Op: Remove, Key: keys.TaintName(t), Old: t.Value, Mark: true, Foreign: true, taint: t})
		}
	}
	slices.SortFunc(out.Steps, compareSteps)
	return out
}

// TaintsAfter returns all taints of the Node after the plan is applied: existing ones in their order, then new ones.
func (p *Plan) TaintsAfter() []corev1.Taint {
	steps := map[string]Step{}
	for _, s := range p.Steps {
		if s.Kind == keys.Taint {
			steps[s.Key] = s
		}
	}
	out := make([]corev1.Taint, 0, len(p.state.Taints)+len(steps))
	for _, t := range p.state.Taints {
		s, ok := steps[keys.TaintName(t)]
		switch {
		case ok && s.Op == Remove:
			continue
		case ok && s.Op == Change:
			t.Value = s.New
		}
		out = append(out, t)
	}
	for _, s := range p.Steps {
		if s.Kind == keys.Taint && s.Op == Add {
			out = append(out, s.taint)
		}
	}
	return out
}

// FormatTaint formats a taint as in the record and in kubectl: key=value:effect, or key:effect if there is no value.
func FormatTaint(t corev1.Taint) string {
	return t.ToString()
}

// ParseTaints parses the record of taints. It skips invalid entries: a user has edited the record, and a wrong guess could remove a
// taint that is not owned.
func ParseTaints(list string) []corev1.Taint {
	var out []corev1.Taint
	for _, item := range strings.Split(list, ",") {
		item = strings.TrimSpace(item)
		colon := strings.LastIndex(item, ":")
		if colon < 1 || colon == len(item)-1 {
			continue
		}
		key, value, _ := strings.Cut(item[:colon], "=")
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(item[colon+1:])})
	}
	return out
}
