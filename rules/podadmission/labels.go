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

// Label is a label of Nodes.
type Label struct{ Name, Value string }

// Labels maps requirements to equivalent node labels.
type Labels map[requirements.Key][]Label

// Rules holds the active rules of one object: the spec with all references resolved, and its compiled form.
type Rules struct {
	Set  *rules.RuleSet
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
}

// LabelsOf returns the labels that rules write on exactly the nodes that match the rules' matchers. A requirement with the same
// matchers is equivalent to such a label, which all schedulers and autoscalers support and which they evaluate before they sample
// nodes.
//
// A rule is used only if nothing else affects its label: it applies to all nodes, reads all features as published, has no loop and
// no actions, does not read outputs of rules (it reads those of earlier rules, but a requirement reads those of all rules), its
// label is literal, and no other rule seems to write the same label. Objects with errors and sensitive objects, whose conditions
// must not be revealed, are not used. In case of doubt, the extender evaluates the requirement.
func LabelsOf(list []Rules, opt rules.Options) Labels {
	writers := map[string]int{}
	var computed strings.Builder // strings that may compute label names
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
		spec, opt := list[i].Spec, opt
		_, _, request := requirements.RequestOf(list[i].Set.Name)
		if request {
			opt.Keys.Requests, opt.DefaultScope = true, "" // as it was compiled
		}
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
				if l := (Label{full, r.Labels[name]}); l.equivalent(r, opt) {
					key := requirements.KeyOf(&assayv1alpha1.Requirement{
						MatchFeatures: r.MatchFeatures, MatchAny: r.MatchAny, Conditions: r.Conditions,
					})
					if request || !slices.ContainsFunc(out[key], ofRule) {
						out[key] = append(out[key], l)
					}
				}
			}
		}
	}
	return out
}

// ofRule reports whether a rule writes a label; otherwise it is the label of a materialized request.
func ofRule(l Label) bool { return !strings.HasPrefix(l.Name, assayv1alpha1.RequestLabelNamespace+"/") }

// For returns the label that is equivalent to a requirement of a pod: the label of the request that the pod names, or
// that of a rule. The labels of other requests do not count, because their owners can delete them.
func (l Labels) For(key requirements.Key, pod *corev1.Pod) (Label, bool) {
	own := requirements.LabelOf(pod.Namespace, pod.Labels[assayv1alpha1.FeatureRequestLabel])
	for _, is := range []func(Label) bool{func(l Label) bool { return l.Name == own }, ofRule} {
		if i := slices.IndexFunc(l[key], is); i >= 0 {
			return l[key][i], true
		}
	}
	return Label{}, false
}

// decidesElsewhere reports whether an action affects the labels of other rules: it changes features that rules read but
// requirements do not, or prevents all changes to the labels of a node.
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

// equivalent reports whether a rule writes the label on exactly the nodes that match its matchers.
func (l Label) equivalent(r *nfdv1alpha1.Rule, opt rules.Options) bool {
	return len(r.MatchFeatures)+len(r.MatchAny)+len(r.Conditions) > 0 && r.Loop == nil && len(r.Actions) == 0 &&
		opt.Keys.Label(l.Name, l.Value).OK() && alone(r, opt)
}

// alone reports whether a rule's matchers have the same meaning in a requirement: they read neither rule.matched nor variables.
func alone(r *nfdv1alpha1.Rule, opt rules.Options) bool {
	req, report := rules.CompileRequirement(field.NewPath("rule"), r.MatchFeatures, r.MatchAny, r.Conditions, opt)
	return req != nil && len(report.Warnings) == 0 && !req.ReadsMatched()
}

// texts returns all strings of a rule that may compute label names.
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
