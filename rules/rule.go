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
	id   *rule // identifies the compiled rule in every program that it is linked into
	keys *keys.Policy

	features   *match.Matcher   // nil: no matchFeatures
	any        []*match.Matcher // empty: no matchAny
	conditions []*condition.Condition
	loop       *condition.Loop

	vars, labels, annotations, resources []assignment
	varsTemplate, labelsTemplate         *tmpl.Template
	taints                               []taint
	actions                              []*action.Action

	// rejected are literal outputs that no rule may write: found once, reported on every node that matches.
	rejected []Rejection
	// fixed is the result on every node that matches, if it is the same for all of them.
	fixed *result

	// reads are the features that the result depends on, by name; derives those that the actions create.
	reads, derives []string
	readsMatched   bool     // reads outputs of earlier rules
	matchedNames   []string // the names of those outputs, unless allMatched
	allMatched     bool
	readsVars      bool // reads variables of its object
	readsNode      bool // reads the node's name or metadata
	readsElements  bool // reads the elements that its matchers matched
	pure           bool // depends only on reads
}

// assignments returns the number of outputs of a rule, without those of templates and actions.
func (r *rule) assignments() int {
	return len(r.vars) + len(r.labels) + len(r.annotations) + len(r.resources)
}

// assignment sets the value of a key.
type assignment struct {
	kind       Kind
	key, value *expr.Text
	// raw is a literal key as written, full the key with its namespace.
	raw, full string
	// checked is set if key and value are literal and may be written; literal is then the value.
	checked bool
	literal string
	// void is set if the value may not be written on any node; full is the key that nothing is written to.
	void bool
	// reference is a value in NFD's notation, late the NAME of an @rule.matched.NAME, which a later rule may still
	// set.
	reference, late string
}

// output returns the output of an assignment that is checked or void, which is the same on every node.
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

// wantsElements reports whether the rule needs the elements that matched, and not only the fact that they did.
func (r *rule) wantsElements() bool {
	return r.varsTemplate != nil || r.labelsTemplate != nil || r.readsElements
}
