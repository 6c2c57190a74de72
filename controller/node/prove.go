package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
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
	var list []string
	for _, s := range lost[:min(len(lost), maxExplained)] {
		list = append(list, fmt.Sprintf("%s (%s)", described(s), j.absence(program, s)))
	}
	if more := len(lost) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	r.events.Eventf(j.node, corev1.EventTypeNormal, "FeaturesLost", "Removed because the features of the node changed: %s", strings.Join(list, "; "))
}

// described returns the kind, the key and the old value of a removed key.
func described(s plan.Step) string {
	if s.Kind == keys.Taint || s.Old == "" {
		return fmt.Sprintf("%s %s", s.Kind, s.Key)
	}
	return fmt.Sprintf("%s %s=%s", s.Kind, s.Key, s.Old)
}

// absence returns which rule no longer gives a key, because of which feature, and who publishes that.
func (j *judge) absence(program *rules.Program, s plan.Step) string {
	var by []string
	for _, g := range j.givers(s) {
		by = append(by, g.Name)
	}
	for _, a := range program.Absences(j.state.Input, s.Kind, s.Key) {
		if !slices.Contains(by, a.Object) || a.Feature == "" {
			continue
		}
		var publishers []string
		for _, f := range j.state.Input.Publishers {
			if f.Facts.Feature(a.Feature) != nil {
				publishers = append(publishers, f.Name)
			}
		}
		if len(publishers) == 0 {
			return fmt.Sprintf("rule %s: no NodeFeature has %s", a.Ref, a.Feature)
		}
		return fmt.Sprintf("rule %s: %s of NodeFeature %s", a.Ref, a.Feature, strings.Join(publishers, ", "))
	}
	return "given by " + strings.Join(by, " or ")
}
