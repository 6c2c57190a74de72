package rules

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/action"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// rule is one compiled rule. It is immutable.
type rule struct {
	ref  Ref
	set  *RuleSet
	keys *keys.Policy

	features   *match.Matcher   // nil: no matchFeatures
	any        []*match.Matcher // empty: no matchAny
	conditions []*condition.Condition
	loop       *condition.Loop

	vars, labels, annotations, resources []assignment
	// templateReferences are the values in NFD's notation that the source of labelsTemplate has, by the text of the value.
	templateReferences           map[string]*assignment
	varsTemplate, labelsTemplate *tmpl.Template
	taints                       []taint
	nodeConditions               []nodeCondition
	actions                      []*action.Action

	// rejected are literal outputs that no rule may write. They are found once and reported on every node that matches.
	rejected []Rejection
	// fixed is the result on every matching node, if it is the same on all of them.
	fixed *result

	// reads are the names of the features that the result depends on; derives are those that the actions create.
	reads, derives []string
	// asks are those of them that conditions and values read, in which a missing feature can make the rule match.
	asks          []string
	readsMatched  bool     // reads outputs of earlier rules
	matchedNames  []string // names of those outputs, unless allMatched is set
	allMatched    bool
	readsVars     bool // reads variables of its object
	readsNode     bool // reads the node's name or metadata
	readsElements bool // reads the elements that its matchers matched
	readsDevices  bool // reads devices of DRA drivers, or outputs of a rule that does; set by Link on a copy
	readsHealth   bool // the same for the health of the node
}

// matchesAll reports whether a rule has no matchers.
func (r *rule) matchesAll() bool {
	return r.features == nil && len(r.any) == 0 && len(r.conditions) == 0 && r.loop == nil
}

// assignments returns the number of outputs of a rule, without those of templates and actions.
func (r *rule) assignments() int {
	return len(r.vars) + len(r.labels) + len(r.annotations) + len(r.resources)
}

// assignment sets the value of a key.
type assignment struct {
	kind       keys.Kind
	key, value *expr.Text
	// raw is a literal key as written; full is the key with its namespace.
	raw, full string
	// checked is set if key and value are literal and valid; literal is then the value.
	checked bool
	literal string
	// void is set if the value is invalid on every node; the assignment then only removes the key full of earlier rules.
	void bool
	// reference is a value in NFD's notation. late is the NAME of @rule.matched.NAME, which a later rule may still set.
	reference, late string
}

// output returns the output of an assignment that is checked or void and is therefore the same on every node.
func (a *assignment) output() output {
	if a.void {
		return output{kind: a.kind, op: opVoid, key: a.full, raw: a.raw, how: howOf[a.kind]}
	}
	return output{kind: a.kind, key: a.full, raw: a.raw, value: a.literal, how: howOf[a.kind]}
}

// taint is a taint whose key and value may be computed.
type taint struct {
	key, value *expr.Text
	effect     corev1.TaintEffect
}

// nodeCondition is a condition of the Node whose parts may be computed.
type nodeCondition struct {
	kind, status, reason, message *expr.Text
}

// parts returns what a condition says, in the order of keys.FormatCondition.
func (n *nodeCondition) parts() [3]*expr.Text { return [...]*expr.Text{n.status, n.reason, n.message} }

// isLiteral reports whether the condition is the same on every node.
func (n *nodeCondition) isLiteral() bool {
	return n.kind.IsLiteral() && n.status.IsLiteral() && n.reason.IsLiteral() && n.message.IsLiteral()
}

// output returns the output of a literal condition.
func (n *nodeCondition) output() output {
	kind := literal(n.kind)
	return output{
		kind: keys.Condition, key: kind, raw: kind, how: howConditions,
		value: keys.FormatCondition(literal(n.status), literal(n.reason), literal(n.message)),
	}
}

// wantsElements reports whether the rule needs the elements that matched, and not only whether they matched.
func (r *rule) wantsElements() bool {
	return r.varsTemplate != nil || r.labelsTemplate != nil || r.readsElements
}
