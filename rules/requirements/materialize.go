package requirements

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// rulePrefix is the first part of the names of rules that materialize requests. The name of a NodeFeatureRule cannot
// contain a slash.
const rulePrefix = "nodefeaturerequest/"

// RuleName returns the name of the rule that materializes a NodeFeatureRequest.
func RuleName(namespace, name string) string { return rulePrefix + namespace + "/" + name }

// RequestOf returns the NodeFeatureRequest that a rule materializes; ok is false for the name of a NodeFeatureRule.
func RequestOf(rule string) (namespace, name string, ok bool) {
	if rest, found := strings.CutPrefix(rule, rulePrefix); found {
		return strings.Cut(rest, "/")
	}
	return "", "", false
}

// ImpossibleLabel is a label that no node has: the label of a request has a dot between namespace and name. Pods that require
// something contradictory get it, so that they wait and do not start on a node that they did not ask for.
const ImpossibleLabel = assayv1alpha1.RequestLabelNamespace + "/invalid-feature-request"

// LabelOf returns the label of the nodes that meet a materialized NodeFeatureRequest: ImpossibleLabel without a name, and if
// <namespace>.<name> is too long for a label.
func LabelOf(namespace, name string) string {
	full := namespace + "." + name // unambiguous: a namespace contains no dot
	if name == "" || len(full) > validation.LabelValueMaxLength {
		return ImpossibleLabel
	}
	return assayv1alpha1.RequestLabelNamespace + "/" + full
}

// The reasons of the condition Materialized of requests for which nodes get no label, whatever the others are: requirements that read
// outputs of rules, and labels that the administrator has disabled.
const (
	ReasonReadsRules = "ReadsRules"
	ReasonDisabled   = "Disabled"
)

// WithoutLabel returns why nodes get no label for a request, so that its pods must not wait for one: the extender, if there is one,
// places them. It returns "" if nodes have the label or will have it, once there is room for it. The policy
// charts/assay/files/scheduling/feature-request.yaml evaluates the same in CEL.
func WithoutLabel(o *assayv1alpha1.NodeFeatureRequest) string {
	need := o.Spec.Required
	switch {
	case o.Spec.Materialize == assayv1alpha1.MaterializeNever:
		return "materialize is Never"
	case need == nil || len(need.MatchFeatures)+len(need.MatchAny)+len(need.Conditions) == 0:
		return "required is empty"
	case readsMatched(need.MatchFeatures) || slices.ContainsFunc(need.MatchAny, func(a nfdv1alpha1.MatchAnyElem) bool { return readsMatched(a.MatchFeatures) }):
		return "required reads " + nfdv1alpha1.RuleMatchedFeature
	}
	c := meta.FindStatusCondition(o.Status.Conditions, assayv1alpha1.ConditionMaterialized)
	if c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == o.Generation && (c.Reason == ReasonReadsRules || c.Reason == ReasonDisabled) {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

func readsMatched(list nfdv1alpha1.FeatureMatcher) bool {
	return slices.ContainsFunc(list, func(term nfdv1alpha1.FeatureMatcherTerm) bool {
		return strings.EqualFold(term.Feature, nfdv1alpha1.RuleMatchedFeature)
	})
}

// NameTooLong says why a request has no label.
func NameTooLong(namespace, name string) string {
	return fmt.Sprintf("%s.%s has %d characters and cannot be a label: use a name of at most %d", namespace, name, len(namespace)+1+len(name),
		max(0, validation.LabelValueMaxLength-1-len(namespace)))
}

// hashLength is the number of hexadecimal digits that replace the end of a long value of a taint.
const hashLength = 10

// TaintValue returns the value of the taint of nodes that no longer meet the requirements of an object: <namespace>.<name> of a
// NodeFeatureRequest, the name of a NodeFeatureSchedulingPolicy, whose namespace is empty. If it is too long, its end is replaced by
// a hash.
func TaintValue(namespace, name string) string {
	full := name
	if namespace != "" {
		full = namespace + "." + name
	}
	if len(full) > validation.LabelValueMaxLength {
		sum := sha256.Sum256([]byte(full))
		full = full[:validation.LabelValueMaxLength-hashLength-1] + "-" + hex.EncodeToString(sum[:])[:hashLength]
	}
	return full
}

// RuleOf returns the rule that labels the nodes that meet a NodeFeatureRequest.
func RuleOf(o *assayv1alpha1.NodeFeatureRequest) *nfdv1alpha1.NodeFeatureRule {
	out := &nfdv1alpha1.NodeFeatureRule{}
	out.Name = RuleName(o.Namespace, o.Name)
	out.UID, out.Generation, out.CreationTimestamp = o.UID, o.Generation, o.CreationTimestamp
	out.Spec.Rules = []nfdv1alpha1.Rule{{
		Name:   "required",
		Labels: map[string]string{LabelOf(o.Namespace, o.Name): "true"},
	}}
	if r := o.Spec.Required; r != nil {
		rule := &out.Spec.Rules[0]
		rule.MatchFeatures, rule.MatchAny, rule.Conditions = r.MatchFeatures, r.MatchAny, r.Conditions
	}
	return out
}
