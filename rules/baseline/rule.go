package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// rulePrefix is the first part of the names of rules that set the conditions of baselines. The name of a NodeFeatureRule cannot contain
// a slash.
const rulePrefix = "nodebaseline/"

// RuleName returns the name of the rules that set the condition of a NodeBaseline on its nodes.
func RuleName(name string) string { return rulePrefix + name }

// Of returns the NodeBaseline whose condition a rule sets; ok is false for other rules.
func Of(rule string) (name string, ok bool) { return strings.CutPrefix(rule, rulePrefix) }

// reasonConforms is the reason of the condition of a node that meets all requirements. Of other nodes it is the first check in CamelCase.
const reasonConforms = "Conforms"

// publishedElement is a feature that every worker publishes, Assay's and NFD's.
const publishedElement = `{@"system.name.nodename"}`

// RuleOf returns the rules that set spec.nodeCondition of a NodeBaseline on the nodes that it selects, from spec.require; nil: it has no
// nodeCondition. Each check sets a variable to "" if the node meets it. The last condition wins, so that of the first check comes last, and
// after it that of nodes whose worker has published nothing.
func RuleOf(o *assayv1alpha1.NodeBaseline) *nfdv1alpha1.NodeFeatureRule {
	spec := &o.Spec
	if spec.NodeCondition == "" {
		return nil
	}
	out := &nfdv1alpha1.NodeFeatureRule{}
	out.Name = RuleName(o.Name)
	out.UID, out.Generation, out.CreationTimestamp = o.UID, o.Generation, o.CreationTimestamp
	if len(spec.NodeSelector) > 0 {
		out.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: spec.NodeSelector}
	} else {
		out.Spec.Scope = ptr.To("") // the default scope is for rules
	}
	start := nfdv1alpha1.Rule{Name: "start", Vars: map[string]string{}}
	var failing strings.Builder
	for i := range spec.Require {
		check := &spec.Require[i]
		text := check.Name
		if check.Message != "" {
			text += " (" + check.Message + ")"
		}
		start.Vars[variable(i)] = literal(text) + "; "
		_, _ = fmt.Fprintf(&failing, "{%s}", variable(i))
		out.Spec.Rules = append(out.Spec.Rules, nfdv1alpha1.Rule{
			Name: check.Name, Vars: map[string]string{variable(i): ""},
			MatchFeatures: check.MatchFeatures, MatchAny: check.MatchAny, Conditions: check.Conditions,
		})
	}
	out.Spec.Rules = slices.Insert(out.Spec.Rules, 0, start)
	say := func(name string, when []nfdv1alpha1.Condition, status, reason, message string) {
		out.Spec.Rules = append(out.Spec.Rules, nfdv1alpha1.Rule{
			Name: "condition " + name, MatchFeatures: spec.MatchFeatures, Conditions: when,
			NodeConditions: []nfdv1alpha1.NodeCondition{{Type: spec.NodeCondition, Status: status, Reason: reason, Message: message}},
		})
	}
	say("conforms", nil, "True", reasonConforms, "The node meets all requirements of NodeBaseline "+o.Name+".")
	for i := len(spec.Require) - 1; i >= 0; i-- {
		say(spec.Require[i].Name, []nfdv1alpha1.Condition{empty("{"+variable(i)+"}", true)}, "False", Reason(spec.Require[i].Name),
			"The node does not meet requirements of NodeBaseline "+o.Name+": "+failing.String()+"see kubectl describe nodebaseline "+o.Name+".")
	}
	say("unknown", []nfdv1alpha1.Condition{empty(publishedElement, false)}, "Unknown", assayv1alpha1.ReasonFeaturesUnknown,
		"The features of the node are unknown: check its worker.")
	return out
}

// variable returns the name of the variable of a check. Variables of all objects are in rule.matched, which no rule should read for these.
func variable(i int) string { return fmt.Sprintf("assay_baseline_%d", i) }

// literal returns a string in which braces are not expressions.
func literal(text string) string { return strings.NewReplacer("{", "(", "}", ")").Replace(text) }

// empty returns the condition that a value is empty, or with invert that it is not.
func empty(value string, invert bool) nfdv1alpha1.Condition {
	args, err := json.Marshal(map[string]string{"value": value})
	if err != nil {
		panic(err) // of strings
	}
	return nfdv1alpha1.Condition{Op: "is-empty", Args: nfdv1alpha1.JSON{Raw: args}, Invert: invert}
}
