package podadmission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// Labels maps requirements that are equivalent to labels of a Node, by their keys.
type Labels map[requirements.Key][]corev1.NodeSelectorRequirement

// Rules holds the active rules of one object: a spec with all references resolved, and its compiled form.
type Rules struct {
	Set  *rules.RuleSet
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
}

// LabelsOf returns, among all rules of a cluster, those that write a label on exactly the nodes that meet their
// matchers. A requirement with the same matchers is then equivalent to the label, which every scheduler and
// autoscaler supports and evaluates before it samples nodes.
//
// A rule counts only if nothing else affects the label: it applies to all nodes, sees all features as they were
// published, has no loop and no actions, reads no outputs of other rules (it sees those of earlier rules, a
// requirement sees all of them), its label is literal, and no other rule seems to write the same one. An object with
// errors does not count, nor does a sensitive one, whose conditions must not be revealed. If this is not certain, the
// requirement is left to the extender.
func LabelsOf(list []Rules, opt rules.Options) Labels {
	writers := map[string]int{}
	var computed strings.Builder // strings that may compute names of labels
	for i := range list {
		for j := range list[i].Spec.Rules {
			r := &list[i].Spec.Rules[j]
			if slices.ContainsFunc(r.Actions, decidesElsewhere) {
				return nil
			}
			for name := range r.Labels {
				writers[opt.Keys.Qualify(name)]++
			}
			computed.WriteString(texts(r))
		}
	}
	out := Labels{}
	for i := range list {
		spec := list[i].Spec
		if !universal(spec, opt) || list[i].Set.Len() != len(spec.Rules) {
			continue
		}
		for j := range spec.Rules {
			r := &spec.Rules[j]
			for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
				full := opt.Keys.Qualify(name)
				if writers[full] > 1 || strings.Contains(computed.String(), bare(full)) {
					continue
				}
				if term, ok := label(r, full, r.Labels[name], opt); ok {
					key := requirements.KeyOf(&assayv1alpha1.Requirement{
						MatchFeatures: r.MatchFeatures, MatchAny: r.MatchAny, Conditions: r.Conditions,
					})
					if out[key] == nil {
						out[key] = []corev1.NodeSelectorRequirement{term}
					}
				}
			}
		}
	}
	return out
}

// decidesElsewhere reports whether an action affects the labels of other rules: it changes the features that rules
// see, but not those that requirements see, or prevents all changes to labels of a node.
func decidesElsewhere(a nfdv1alpha1.Action) bool {
	return slices.ContainsFunc(actionKinds, func(k rules.ActionKind) bool {
		return k.Name == strings.TrimSpace(a.Op) && (k.Stops || k.Derives)
	})
}

var actionKinds = rules.ActionKinds()

// universal reports whether an object's rules are evaluated on every node with all of its features.
func universal(s *nfdv1alpha1.NodeFeatureRuleSpec, opt rules.Options) bool {
	return s.NodeSelector == nil && s.Scope == nil && opt.DefaultScope == "" && s.FeatureSources == nil &&
		len(s.BasedOn) == 0 && len(s.RulesFrom) == 0 && (s.Phase == nil || *s.Phase == nfdv1alpha1.PhaseMain) &&
		(s.Sensitive == nil || !*s.Sensitive)
}

// label returns the term that selects the nodes on which a rule writes a label.
func label(r *nfdv1alpha1.Rule, name, value string, opt rules.Options) (corev1.NodeSelectorRequirement, bool) {
	var none corev1.NodeSelectorRequirement
	if len(r.MatchFeatures)+len(r.MatchAny)+len(r.Conditions) == 0 || r.Loop != nil || len(r.Actions) > 0 {
		return none, false
	}
	if strings.HasPrefix(value, "@") || strings.ContainsAny(name+value, "{}") {
		return none, false
	}
	if !opt.Keys.Label(name, value).OK() || !alone(r, opt) {
		return none, false
	}
	return corev1.NodeSelectorRequirement{Key: name, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}, true
}

// alone reports whether a rule's matchers mean the same in a requirement: they read no outputs of rules, neither
// rule.matched nor variables, which a requirement does not have.
func alone(r *nfdv1alpha1.Rule, opt rules.Options) bool {
	req, report := rules.CompileRequirement(field.NewPath("rule"), r.MatchFeatures, r.MatchAny, r.Conditions, opt)
	return req != nil && len(report.Warnings) == 0 && !req.ReadsMatched()
}

// texts returns all strings of a rule that may compute names of labels.
func texts(r *nfdv1alpha1.Rule) string {
	out := r.LabelsTemplate + "\n"
	for name := range r.Labels {
		if strings.Contains(name, "{") {
			out += name + "\n"
		}
	}
	for i := range r.Actions {
		if data, err := json.Marshal(r.Actions[i]); err == nil {
			out += string(data) + "\n"
		}
	}
	return out
}

// bare returns the name of a label without its namespace.
func bare(name string) string { return name[strings.IndexByte(name, '/')+1:] }
