package assembly

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// missing are the fields that the API server drops.
func (a *Assembler) missing() []string {
	if a.opt.Missing == nil {
		return nil
	}
	return a.opt.Missing()
}

// refuses says why an object cannot be trusted under the definition that the cluster serves, or served when the object was
// written. If that lacks fields of ours, the API server has dropped them without a word, and a rule without its conditions
// matches more than its author meant.
//
// What was dropped is only known of objects that kubectl has applied. Of the others, those with rules that match every node
// are suspect. All others are evaluated, with a warning: plain rules for Node Feature Discovery are most of what a cluster
// with its definition has, and they lose nothing.
func (a *Assembler) refuses(obj *nfdv1alpha1.NodeFeatureRule, last *Object) *Problem {
	missing := a.missing()
	if len(missing) == 0 {
		return leftover(obj, last)
	}
	outdated := func(why string) *Problem {
		return &Problem{reasonSchema, fmt.Sprintf(
			"the definition of NodeFeatureRule in this cluster is not Assay's and lacks fields (%s): %s; apply Assay's definition, then the object again",
			strings.Join(missing, ", "), why)}
	}
	if lost := dropped(obj, missing); len(lost) > 0 {
		return outdated("the object was written with " + strings.Join(lost, ", "))
	}
	if !slices.Contains(missing, "spec.rules[].conditions") {
		return nil
	}
	if names := unrestricted(&obj.Spec); len(names) > 0 {
		return outdated(fmt.Sprintf("rule %q matches every node, which it may not have been meant to", names[0]))
	}
	return nil
}

// leftover refuses what was refused under another definition and has not been written since: that the definition has the
// fields now does not bring back what it dropped. The status remembers over a restart.
func leftover(obj *nfdv1alpha1.NodeFeatureRule, last *Object) *Problem {
	suspect := last != nil && last.Generation == obj.Generation && last.Refused != nil &&
		(last.Refused.Reason == reasonSchema || last.Refused.Reason == reasonDropped)
	if !suspect {
		accepted := meta.FindStatusCondition(obj.Status.Conditions, nfdv1alpha1.ConditionAccepted)
		suspect = accepted != nil && accepted.ObservedGeneration == obj.Generation &&
			(accepted.Reason == reasonSchema || accepted.Reason == reasonDropped)
	}
	if !suspect {
		return nil
	}
	return &Problem{reasonDropped,
		"the object was written while the definition of NodeFeatureRule lacked fields that it may have had; delete it and create it again"}
}

// suspicion is what the status of an object says that is evaluated although the definition lacks fields; "" if it lacks none.
func (a *Assembler) suspicion() string {
	if n := len(a.missing()); n > 0 {
		return fmt.Sprintf("the definition of NodeFeatureRule in this cluster is not Assay's and drops %d fields; "+
			"should this object have been written with one of them, it is gone", n)
	}
	return ""
}

// dropped returns which of the missing fields an object has lost, as far as anybody can know: kubectl records what it was
// given in an annotation, which the API server does not cut. Neither managedFields nor an audit log would help, because both
// are written after the cut.
func dropped(rule *nfdv1alpha1.NodeFeatureRule, missing []string) (out []string) {
	text := rule.Annotations[corev1.LastAppliedConfigAnnotation]
	if text == "" || len(missing) == 0 {
		return nil
	}
	var given map[string]any
	if json.Unmarshal([]byte(text), &given) != nil {
		return nil
	}
	for _, path := range missing {
		if mentions(given, strings.Split(path, ".")) {
			out = append(out, path)
		}
	}
	return out
}

// mentions reports whether a value has something at a path, whose steps are names, with [] after those of lists.
func mentions(value any, path []string) bool {
	if len(path) == 0 {
		return value != nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return false
	}
	name, list := strings.CutSuffix(path[0], "[]")
	if !list {
		return mentions(fields[name], path[1:])
	}
	items, _ := fields[name].([]any)
	return slices.ContainsFunc(items, func(item any) bool { return mentions(item, path[1:]) })
}

// unrestricted returns the names of the rules that would match every node: under a definition that drops conditions, nobody
// can tell whether they are meant to.
func unrestricted(spec *nfdv1alpha1.NodeFeatureRuleSpec) (names []string) {
	for i := range spec.Rules {
		if r := &spec.Rules[i]; len(r.MatchFeatures) == 0 && len(r.MatchAny) == 0 && len(r.Conditions) == 0 {
			names = append(names, r.Name)
		}
	}
	return names
}
