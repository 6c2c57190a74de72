package rule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// refuses says why an object cannot be trusted under the schema that the cluster serves. If that lacks fields of ours, the API
// server has dropped them without a word, and a rule without its conditions matches more than its author meant. What was
// dropped is only known of objects that kubectl has applied; of the others, rules that match every node are suspect.
func (c *compiler) refuses(obj *nfdv1alpha1.NodeFeatureRule, last *report) *problem {
	if len(c.opt.MissingFields) == 0 {
		return nil
	}
	if lost := c.lost(obj.Annotations[corev1.LastAppliedConfigAnnotation]); len(lost) > 0 {
		return c.outdated("it was written with " + strings.Join(lost, ", "))
	}
	if !slices.Contains(c.opt.MissingFields, "spec.rules[].conditions") {
		return nil
	}
	for i := range obj.Spec.Rules {
		r := &obj.Spec.Rules[i]
		if len(r.MatchFeatures)+len(r.MatchAny) == 0 {
			return c.outdated(fmt.Sprintf("rule %q matches every node, which it may not have been meant to", r.Name))
		}
	}
	return nil
}

func (c *compiler) outdated(why string) *problem {
	return &problem{reasonSchema, fmt.Sprintf(
		"the definition of NodeFeatureRule in this cluster is not Assay's and lacks fields (%s): %s; apply Assay's definition",
		strings.Join(c.opt.MissingFields, ", "), why)}
}

// lost returns those of the missing fields that the author of an object has written.
func (c *compiler) lost(applied string) []string {
	var written struct {
		Spec map[string]any `json:"spec"`
	}
	if applied == "" || json.Unmarshal([]byte(applied), &written) != nil {
		return nil
	}
	has := map[string]bool{}
	for name := range written.Spec {
		has["spec."+name] = true
	}
	list, _ := written.Spec["rules"].([]any)
	for _, r := range list {
		fields, _ := r.(map[string]any)
		for name := range fields {
			has["spec.rules[]."+name] = true
		}
	}
	var out []string
	for _, name := range c.opt.MissingFields {
		if has[name] {
			out = append(out, name)
		}
	}
	return out
}
