package evaluation

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// Result is the JSON of an outcome. Empty fields are omitted.
type Result struct {
	Node              string            `json:"node"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Taints            []corev1.Taint    `json:"taints,omitempty"`
	ExtendedResources map[string]string `json:"extendedResources,omitempty"`
	NodeConditions    map[string]string `json:"nodeConditions,omitempty"`
	Vars              map[string]string `json:"vars,omitempty"`
	Events            []rules.Event     `json:"events,omitempty"`
	Failed            *rules.Failure    `json:"failed,omitempty"`
	Rules             []ruleResult      `json:"rules,omitempty"`
}

type ruleResult struct {
	Object  string `json:"object"`
	Rule    string `json:"rule"`
	Matched bool   `json:"matched"`
	Error   string `json:"error,omitempty"`
}

// NewResult converts an outcome to a result. It omits the outputs if a rule has failed, since nothing is then written to the node,
// and the variables of sensitive rules.
func NewResult(o *rules.Outcome, taints bool) *Result {
	r := &Result{Node: o.Node, Events: o.Events(), Failed: o.Failed, Vars: map[string]string{}}
	if o.Failed == nil {
		r.Labels, r.Annotations, r.ExtendedResources, r.NodeConditions = o.Labels(), o.Annotations(), o.ExtendedResources(), o.NodeConditions()
		if taints {
			r.Taints = o.Taints()
		}
	}
	sensitive := map[rules.Ref]bool{}
	for _, rule := range o.Rules() {
		sensitive[rule.Ref] = rule.Sensitive
		out := ruleResult{Object: rule.Object, Rule: rule.Rule, Matched: rule.Matched}
		if rule.Err != nil {
			out.Error = rule.Err.Error()
		}
		r.Rules = append(r.Rules, out)
	}
	for name, value := range o.Vars() {
		if origin, _ := o.Origin(keys.Var, name); !sensitive[origin.Ref] {
			r.Vars[name] = value
		}
	}
	return r
}
