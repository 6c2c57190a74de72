package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// lostEvents returns Events about the keys that a plan removed because of the node's features.
func lostEvents(p *pass, d *decide.Decision) (out []decide.Event) {
	all := slices.SortedStableFunc(slices.Values(d.Lost), func(a, b plan.Step) int {
		return keys.CompareImportance(a.Kind, a.Key, b.Kind, b.Key)
	})
	shown := all[:min(len(d.Lost), maxLostEvents*hold.MaxKeys)]
	for chunk := range slices.Chunk(shown, hold.MaxKeys) {
		var lost []string
		text, last := "", "" // last: the reason of the keys before
		for _, s := range chunk {
			why := absence(p, s, d.GaveBefore(s))
			switch {
			case text == "":
			case why == last:
				text += ", "
			default:
				text += fmt.Sprintf(" (%s); ", last)
			}
			text, last, lost = text+described(s), why, append(lost, hold.Key(s.Kind, s.Key))
		}
		out = append(out, decide.Event{
			Type: corev1.EventTypeNormal, Reason: hold.Lost,
			Message: fmt.Sprintf("Removed because the features of the node changed: %s (%s)", text, last), Keys: lost,
		})
	}
	if more := len(d.Lost) - len(shown); more > 0 {
		out[len(out)-1].Message += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// maxLostEvents is the maximum number of Events FeaturesLost of one pass: the recorder drops Events after 25 about one object.
const maxLostEvents = 5

// maxValue is the maximum number of bytes of an old value in an Event: an annotation can have many.
const maxValue = 64

// described returns the kind, the key and the old value of a removed key.
func described(s plan.Step) string {
	key, effect := s.Key, ""
	if s.Kind == keys.Taint {
		if i := strings.LastIndexByte(key, ':'); i >= 0 {
			key, effect = key[:i], key[i:]
		}
	}
	if s.Old != "" {
		key += "=" + clip.Text(s.Old, maxValue)
	}
	return fmt.Sprintf("%s %s%s", s.Kind, key, effect)
}

// absence returns which rule no longer gives a key, because of which feature, and who publishes that.
func absence(p *pass, s plan.Step, owners []record.Owner) string {
	gone := ""
	if names := vanished(p); len(names) > 0 {
		gone = "; deleted: NodeFeature " + strings.Join(names, ", ")
	}
	for _, a := range p.program.Absences(p.state.Input, s.Kind, s.Key) {
		if a.Feature == "" || !slices.ContainsFunc(owners, func(g record.Owner) bool { return g.Name == a.Object }) {
			continue
		}
		switch feature := strings.ToLower(a.Feature); {
		case facts.IsDevices(feature):
			return fmt.Sprintf("rule %s: %s of the node's ResourceSlices", a.Ref, a.Feature)
		case facts.IsKubernetes(feature):
			return fmt.Sprintf("rule %s: %s of the Node", a.Ref, a.Feature)
		}
		var publishers []string
		for _, f := range p.state.Input.Publishers {
			if f.Facts.Feature(a.Feature) != nil {
				publishers = append(publishers, f.Name)
			}
		}
		if len(publishers) == 0 {
			return fmt.Sprintf("rule %s: no NodeFeature has %s%s", a.Ref, a.Feature, gone)
		}
		return fmt.Sprintf("rule %s: %s of NodeFeature %s", a.Ref, a.Feature, strings.Join(publishers, ", "))
	}
	if slices.ContainsFunc(owners, func(g record.Owner) bool { return g.ID == record.Requested }) {
		return "no NodeFeature requests it" + gone
	}
	return "given by " + decide.Names(owners) + gone
}

// vanished returns the NodeFeatures that counted in the last pass over the node and do not count now.
func vanished(p *pass) (out []string) {
	for _, name := range p.known.Publishers {
		if !slices.ContainsFunc(p.state.Input.Publishers, func(now rules.Publisher) bool { return now.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}
