package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
)

// Limits on the compiled size in bytes, as estimated by package size. Each part of an object has its own limit, but an object that
// reaches all of them would take gigabytes.
const (
	// MaxSize is the maximum compiled size of an object: 1,000 patterns, 40,000 values or 5,000 labels. An ordinary rule takes 3
	// kB, so 256 of them use a fifth.
	MaxSize = 4 << 20
	// MaxClusterSize is the maximum compiled size of all objects of a cluster together: 5,000 ordinary rules. The controller, the
	// webhook and the extender each keep them in memory; the webhook's limit is 256 MiB.
	MaxClusterSize = 16 << 20
	// MaxRequirementSize is the maximum compiled size of everything that one pod, NodeFeatureRequest or policy requires and
	// prefers: 100 patterns or 3,000 values. Any user who may create pods causes this much work with each change.
	MaxRequirementSize = 512 << 10
)

// Sizes of the parts of a rule, measured and rounded up.
const (
	ruleBytes       = 768
	termBytes       = 256
	matchBytes      = 192
	matchValueBytes = 96
)

// ruleSize returns the size of a rule without its regular expressions and templates, because equal ones are kept only once.
func ruleSize(in *nfdv1alpha1.Rule) int {
	n := ruleBytes + matcherSize(in.MatchFeatures)
	for i := range in.MatchAny {
		n += termBytes + matcherSize(in.MatchAny[i].MatchFeatures)
	}
	for _, outputs := range []map[string]string{in.Vars, in.Labels, in.Annotations, in.ExtendedResources} {
		for key, value := range outputs {
			n += size.Entry(key, value)
		}
	}
	for i := range in.Taints {
		n += size.Entry(in.Taints[i].Key, in.Taints[i].Value)
	}
	for i := range in.NodeConditions {
		c := &in.NodeConditions[i]
		n += size.Entry(c.Type, c.Status) + size.Entry(c.Reason, c.Message)
	}
	for i := range in.Conditions {
		n += size.JSON(in.Conditions[i].Args.Raw)
		if loop := in.Conditions[i].Loop; loop != nil {
			n += size.JSON(loop.Raw)
		}
	}
	for i := range in.Actions {
		n += size.JSON(in.Actions[i].Args.Raw)
		if loop := in.Actions[i].Loop; loop != nil {
			n += size.JSON(loop.Raw)
		}
	}
	if in.Loop != nil {
		n += size.JSON(in.Loop.Raw)
	}
	return n
}

func matcherSize(terms nfdv1alpha1.FeatureMatcher) int {
	n := 0
	for i := range terms {
		n += termBytes + len(terms[i].Feature)
		if e := terms[i].MatchName; e != nil {
			n += expressionSize(e)
		}
		if terms[i].MatchExpressions == nil {
			continue
		}
		for name, e := range *terms[i].MatchExpressions {
			n += len(name) + expressionSize(e)
		}
	}
	return n
}

func expressionSize(e *nfdv1alpha1.MatchExpression) int {
	n := matchBytes
	if e == nil {
		return n
	}
	each := matchValueBytes
	if match.Operator(e.Op).Patterns {
		each += match.PatternBytes
	}
	for _, v := range e.Value {
		n += each + len(v)
	}
	return n
}

// tooLarge returns the error of the first rule that exceeds an object's limit. Earlier rules are kept.
func tooLarge(path *field.Path, limit int) *field.Error {
	return field.Forbidden(path, fmt.Sprintf("up to here the object takes more than %d bytes of memory when it is compiled; "+
		"split it, or use fewer values and simpler patterns", limit))
}
