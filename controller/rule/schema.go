package rule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/schema"
)

// missing are the fields that the API server drops.
func (c *compiler) missing() []string {
	if c.opt.Schema == nil {
		return nil
	}
	return c.opt.Schema.Missing()
}

// refuses says why an object cannot be trusted under the definition that the cluster serves, or served when the object was
// written. If that lacks fields of ours, the API server has dropped them without a word, and a rule without its conditions
// matches more than its author meant.
//
// What was dropped is only known of objects that kubectl has applied. Of the others, those with rules that match every node
// are suspect. All others are evaluated, with a warning: plain rules for Node Feature Discovery are most of what a cluster
// with its definition has, and they lose nothing.
func (c *compiler) refuses(obj *nfdv1alpha1.NodeFeatureRule, last *report) *problem {
	missing := c.missing()
	if len(missing) == 0 {
		return leftover(obj, last)
	}
	outdated := func(why string) *problem {
		return &problem{reasonSchema, fmt.Sprintf(
			"the definition of NodeFeatureRule in this cluster is not Assay's and lacks fields (%s): %s; apply Assay's definition, then the object again",
			strings.Join(missing, ", "), why)}
	}
	if lost := schema.Dropped(obj, missing); len(lost) > 0 {
		return outdated("the object was written with " + strings.Join(lost, ", "))
	}
	if !slices.Contains(missing, "spec.rules[].conditions") {
		return nil
	}
	if names := schema.Unrestricted(&obj.Spec); len(names) > 0 {
		return outdated(fmt.Sprintf("rule %q matches every node, which it may not have been meant to", names[0]))
	}
	return nil
}

// leftover refuses what was refused under another definition and has not been written since: that the definition has the
// fields now does not bring back what it dropped. The status remembers over a restart.
func leftover(obj *nfdv1alpha1.NodeFeatureRule, last *report) *problem {
	suspect := last != nil && last.generation == obj.Generation && last.refused != nil &&
		(last.refused.reason == reasonSchema || last.refused.reason == reasonDropped)
	if !suspect {
		accepted := meta.FindStatusCondition(obj.Status.Conditions, nfdv1alpha1.ConditionAccepted)
		suspect = accepted != nil && accepted.ObservedGeneration == obj.Generation &&
			(accepted.Reason == reasonSchema || accepted.Reason == reasonDropped)
	}
	if !suspect {
		return nil
	}
	return &problem{reasonDropped,
		"the object was written while the definition of NodeFeatureRule lacked fields that it may have had; delete it and create it again"}
}

// suspicion is what the status of an object says that is evaluated although the definition lacks fields; "" if it lacks none.
func (c *compiler) suspicion() string {
	if n := len(c.missing()); n > 0 {
		return fmt.Sprintf("the definition of NodeFeatureRule in this cluster is not Assay's and drops %d fields; "+
			"should this object have been written with one of them, it is gone", n)
	}
	return ""
}
