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

// missing returns the fields that the API server drops.
func (a *Assembler) missing() []string {
	if a.opt.Missing == nil {
		return nil
	}
	return a.opt.Missing()
}

// refuses returns the reason why an object is rejected under the CRD of the cluster, now or at the time when the object was
// written. If that CRD lacks fields of Assay, the API server has dropped them silently, and a rule without its conditions matches
// more nodes than intended.
//
// Only for objects applied with kubectl is it known which fields were dropped. Other objects are rejected if they have rules that
// match every node. All others are evaluated, with a warning: in a cluster with NFD's CRD most are plain NFD rules, which lose
// nothing.
func (a *Assembler) refuses(obj *nfdv1alpha1.NodeFeatureRule, last *Object) *Error {
	missing := a.missing()
	if len(missing) == 0 {
		return leftover(obj, last)
	}
	outdated := func(why string) *Error {
		return &Error{reasonSchema, fmt.Sprintf(
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
		return outdated(fmt.Sprintf("rule %q matches every node, which may not be intended", names[0]))
	}
	return nil
}

// leftover rejects an object that was rejected under another CRD and has not been written since: a new CRD does not restore dropped
// fields. The status of the object preserves this across restarts.
func leftover(obj *nfdv1alpha1.NodeFeatureRule, last *Object) *Error {
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
	return &Error{reasonDropped,
		"the object was written while the definition of NodeFeatureRule lacked fields that it may have had; delete it and create it again"}
}

// suspicion returns the message for objects that are evaluated although the CRD lacks fields, or "" if it lacks none.
func (a *Assembler) suspicion() string {
	if n := len(a.missing()); n > 0 {
		return fmt.Sprintf("the definition of NodeFeatureRule in this cluster is not Assay's and drops %d fields; "+
			"if this object was written with one of them, the field was lost", n)
	}
	return ""
}

// dropped returns which of the missing fields an object has lost, as far as this is known: kubectl records the applied object in an
// annotation, which the API server does not prune. managedFields and audit logs do not help, because they are written after
// pruning.
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

// mentions reports whether a value exists at a path. The elements of the path are names, with [] after those of lists.
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

// unrestricted returns the names of the rules that match every node. Under a CRD that drops conditions, it is unknown whether this
// is intended.
func unrestricted(spec *nfdv1alpha1.NodeFeatureRuleSpec) (names []string) {
	for i := range spec.Rules {
		if r := &spec.Rules[i]; len(r.MatchFeatures) == 0 && len(r.MatchAny) == 0 && len(r.Conditions) == 0 {
			names = append(names, r.Name)
		}
	}
	return names
}
