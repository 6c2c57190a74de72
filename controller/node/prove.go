package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// errInconsistent is returned after the facts in memory gave another result than those of the API server.
var errInconsistent = errors.New("the features in memory differ from those of the API server; the node is evaluated again with the latter")

// prove checks with the API server, before a plan is carried out, that the features of the node explain what it takes away. A cache that
// was filled from a truncated list, or that holds wrong values, must not cost a node its labels. In the first pass of a process over a node,
// this includes changed values.
func (r *Reconciler) prove(ctx context.Context, program *rules.Program, p *plan.Plan, j *judge) error {
	doubtful := slices.DeleteFunc(slices.Clone(p.Steps), func(s plan.Step) bool {
		return !s.Takes() || r.switchedOff(s) || j.explained(s) || s.Op != plan.Remove && j.known.given != nil
	})
	if len(doubtful) == 0 {
		return nil
	}
	if slices.ContainsFunc(doubtful, func(s plan.Step) bool { return !j.gave(s) }) {
		if err := r.inputs.Confirm(ctx, j.state); err != nil { // what gave the key is unknown to this process
			return err
		}
	}
	proof, err := r.inputs.Prove(ctx, j.state)
	if err != nil {
		return err
	}
	outcome := program.Eval(proof.Input)
	agrees := func(s plan.Step) bool {
		value, gives := wanted(outcome, s)
		return gives == (s.Op != plan.Remove) && (!gives || value == s.New)
	}
	if (outcome.Failed == nil) == (j.outcome.Failed == nil) && !slices.ContainsFunc(doubtful, func(s plan.Step) bool { return !agrees(s) }) {
		return nil
	}
	r.metrics.inconsistent.Inc()
	logInconsistent(ctx, j, proof, r.registry.Options().Mask)
	r.inputs.Replace(proof)
	return errInconsistent
}

// wanted returns the value that an outcome has for the key of a step.
func wanted(o *rules.Outcome, s plan.Step) (value string, ok bool) {
	switch s.Kind {
	case keys.Label:
		value, ok = o.Labels()[s.Key]
	case keys.Annotation:
		value, ok = o.Annotations()[s.Key]
	case keys.Resource:
		value, ok = o.ExtendedResources()[s.Key]
	case keys.Condition:
		value, ok = o.NodeConditions()[s.Key]
	case keys.Taint:
		i := slices.IndexFunc(o.Taints(), func(t corev1.Taint) bool { return plan.TaintKey(t) == s.Key })
		if ok = i >= 0; ok {
			value = o.Taints()[i].Value
		}
	}
	return value, ok
}

func logInconsistent(ctx context.Context, j *judge, proof *inputs.Proof, mask rules.Masking) {
	log := logf.FromContext(ctx).WithValues("node", j.node.Name)
	d := inputs.Differ(j.state.Input.Facts, proof.Input.Facts)
	if d == nil {
		log.Error(errInconsistent, "Dropped a plan that takes keys away: the rules give another result for equal features")
		return
	}
	shown := func(value *string) string {
		switch {
		case value == nil:
			return "(none)"
		case mask.Hides(d.Element):
			return "(masked)"
		}
		return *value
	}
	log.Error(errInconsistent, "Dropped a plan that takes keys away",
		"feature", d.Feature, "element", d.Element, "inMemory", shown(d.First), "inTheAPIServer", shown(d.Second))
}

// reportLost emits an Event about the keys that a plan removed because of the node's features.
func (r *Reconciler) reportLost(program *rules.Program, p *plan.Plan, j *judge, causes map[string]provenance.Cause) {
	var lost []plan.Step
	for _, s := range p.Steps {
		if causes[name(s)] == provenance.Facts && s.Op == plan.Remove {
			lost = append(lost, s)
		}
	}
	if len(lost) == 0 {
		return
	}
	shown := lost[:min(len(lost), maxLostEvents*hold.MaxKeys)]
	var messages []string
	for chunk := range slices.Chunk(shown, hold.MaxKeys) {
		text, last := "", "" // last: the reason of the keys before
		for _, s := range chunk {
			why := j.absence(program, s)
			switch {
			case text == "":
			case why == last:
				text += ", "
			default:
				text += fmt.Sprintf(" (%s); ", last)
			}
			text, last = text+described(s), why
		}
		messages = append(messages, fmt.Sprintf("%s (%s)", text, last))
	}
	if more := len(lost) - len(shown); more > 0 {
		messages[len(messages)-1] += fmt.Sprintf("; and %d more", more)
	}
	for _, text := range messages {
		r.events.Event(j.node, corev1.EventTypeNormal, hold.Lost, "Removed because the features of the node changed: "+text)
	}
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
func (j *judge) absence(program *rules.Program, s plan.Step) string {
	givers := j.givers(s)
	gone := ""
	if names := j.vanished(); len(names) > 0 {
		gone = "; deleted: NodeFeature " + strings.Join(names, ", ")
	}
	for _, a := range program.Absences(j.state.Input, s.Kind, s.Key) {
		if a.Feature == "" || !slices.ContainsFunc(givers, func(g provenance.Giver) bool { return g.Name == a.Object }) {
			continue
		}
		var publishers []string
		for _, f := range j.state.Input.Publishers {
			if f.Facts.Feature(a.Feature) != nil {
				publishers = append(publishers, f.Name)
			}
		}
		if len(publishers) == 0 {
			return fmt.Sprintf("rule %s: no NodeFeature has %s%s", a.Ref, a.Feature, gone)
		}
		return fmt.Sprintf("rule %s: %s of NodeFeature %s", a.Ref, a.Feature, strings.Join(publishers, ", "))
	}
	if slices.ContainsFunc(givers, func(g provenance.Giver) bool { return g.ID == record.Requested }) {
		return "no NodeFeature requests it" + gone
	}
	return "given by " + givenNames(givers) + gone
}

// vanished returns the NodeFeatures that counted in the last pass over the node and do not count now.
func (j *judge) vanished() (out []string) {
	for _, name := range j.known.publishers {
		if !slices.ContainsFunc(j.state.Input.Publishers, func(p rules.Publisher) bool { return p.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}
