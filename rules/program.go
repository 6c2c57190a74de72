// Package rules evaluates rules on the facts of a node and computes the outputs to write on it.
//
// Compile compiles one object to a RuleSet and reports all of its errors at once. Link orders RuleSets into a Program. Eval applies
// a Program to the Facts of one node and returns an Outcome. The package does not talk to a cluster or read a clock, and keeps no
// state between nodes. The controller, the webhook, the worker's custom rules, the scheduler extender and
// the command line all use it.
package rules

import (
	"cmp"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/action"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// The phases in evaluation order.
const (
	phaseEarly = iota
	phasePreprocess
	phaseMain
)

// RuleSet is one compiled object. It is immutable and safe for concurrent use.
type RuleSet struct {
	// Name of the object.
	Name string
	// UID of the object, if it comes from a cluster.
	UID string
	// BuiltIn marks a set that the administrator installed with the controller.
	BuiltIn bool

	phase     int
	priority  int32
	sensitive bool
	selector  labels.Selector // nil: every node
	scope     string          // "": every node
	sources   *publishers     // nil: every NodeFeature
	rules     []*rule
	readsVars bool // a rule reads variables of another rule
	hash      func() string
	size      int
	index     int // index in the program; set by Link on a copy
}

// Len returns the number of valid rules in the set.
func (s *RuleSet) Len() int { return len(s.rules) }

// Hash returns a hash of the source of the set.
func (s *RuleSet) Hash() string { return s.hash() }

// Size returns the estimated size of the set in bytes, which is the same on every machine; see package size.
func (s *RuleSet) Size() int { return s.size }

// Priority orders sets of one phase: higher first.
func (s *RuleSet) Priority() int32 { return s.priority }

// Program holds compiled objects in evaluation order. It is immutable and safe for concurrent use.
type Program struct {
	opt   Options
	sets  []*RuleSet
	rules []*rule

	// reads are the names of the features that rules read, sorted.
	reads []string
	// perNode is set if outcomes depend on the node itself, not only on its features.
	perNode bool
	// chained is set if a rule reads outputs of earlier rules; matched are the names that they look up, unless allMatched is set.
	chained    bool
	matched    map[string]bool
	allMatched bool
}

// Link orders sets into a program: by phase, then by priority (higher first), then by name. If a built-in set has the same name as
// another one, it comes second.
func Link(opt Options, sets ...*RuleSet) *Program {
	p := &Program{opt: opt, matched: map[string]bool{}}
	for _, s := range sets {
		c := *s
		p.sets = append(p.sets, &c)
	}
	slices.SortStableFunc(p.sets, func(a, b *RuleSet) int {
		return cmp.Or(
			cmp.Compare(a.phase, b.phase),
			cmp.Compare(b.priority, a.priority),
			cmp.Compare(a.Name, b.Name),
		)
	})
	reads := map[string]bool{}
	for i, s := range p.sets {
		s.index = i
		for _, r := range s.rules {
			p.include(s, r)
			for _, name := range r.reads {
				reads[name] = true
			}
		}
	}
	p.reads = facts.SortedKeys(reads)
	p.follow(facts.IsDevices, func(r *rule) *bool { return &r.readsDevices })
	p.follow(facts.IsHealth, func(r *rule) *bool { return &r.readsHealth })
	return p
}

func (p *Program) include(s *RuleSet, r *rule) {
	linked := *r
	linked.set = s
	p.rules = append(p.rules, &linked)
	p.chained = p.chained || r.readsMatched || r.readsVars
	s.readsVars = s.readsVars || r.readsVars
	for _, name := range r.matchedNames {
		p.matched[name] = true
	}
	p.allMatched = p.allMatched || r.allMatched
	if r.readsNode || s.selector != nil || s.scope != "" || s.sources != nil {
		p.perNode = true
	}
}

// Rules returns the names of the rules in evaluation order.
func (p *Program) Rules() []Ref {
	out := make([]Ref, len(p.rules))
	for i, r := range p.rules {
		out[i] = r.ref
	}
	return out
}

// Reads returns the names of the features that the rules of a set read, in no order.
func (s *RuleSet) Reads() (out []string) {
	for _, r := range s.rules {
		out = append(out, r.reads...)
	}
	return out
}

// Reads returns the names of the features that the rules read, sorted.
func (p *Program) Reads() []string { return p.reads }

// Derives returns the features that the set's rules create on nodes, in lower case and in rule order. Only sets of the phases
// before main create features.
func (s *RuleSet) Derives() []string {
	var out []string
	for _, r := range s.rules {
		out = append(out, r.derives...)
	}
	return out
}

// Early reports whether the set is evaluated before main rules and can therefore change the features that they read.
func (s *RuleSet) Early() bool { return s.phase != phaseMain }

// ReadsOthers reports whether a rule of the set reads outputs of other rules.
func (s *RuleSet) ReadsOthers() bool {
	for _, r := range s.rules {
		if r.readsMatched {
			return true
		}
	}
	return false
}

// publishers selects NodeFeatures by their publisher.
type publishers struct {
	pattern *regexp.Regexp // matches namespace/name
}

// choose returns the merged facts of the selected publishers, in the same order as all facts.
func (p *publishers) choose(e *evaluation) facts.Source {
	var chosen []*facts.Facts
	for _, publisher := range e.in.Publishers {
		if p.pattern.MatchString(publisher.Name) {
			chosen = append(chosen, publisher.Facts)
		}
	}
	src := facts.NewOverlay(facts.Merge(nil, chosen...))
	e.showMatched(src)
	return src
}

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

// follow marks the rules that depend on some features: they read them, or outputs of a rule that does. It ignores the order of the rules,
// because the value of a label can be an output of a later rule.
func (p *Program) follow(is func(feature string) bool, mark func(*rule) *bool) {
	var found doubt
	for again := true; again; {
		again = false
		for _, r := range p.rules {
			if depends := mark(r); !*depends && (slices.ContainsFunc(r.reads, is) || found.affects(r)) {
				*depends, again = true, true
				found.add(r)
			}
		}
	}
}

// ReadsDevices reports whether a key may depend on devices of DRA drivers: a rule that may write it reads them, or outputs of a rule that does.
// Only the rules of objects for which of is true count.
func (p *Program) ReadsDevices(kind keys.Kind, key string, of func(*RuleSet) bool) bool {
	return slices.ContainsFunc(p.rules, func(r *rule) bool {
		return r.readsDevices && (r.names(kind, key) || r.open(kind)) && of(r.set)
	})
}

// ReadsHealth reports whether an output of an object may depend on the health of a node, as ReadsDevices does for devices. Features are those
// about health that such rules read themselves, sorted.
func (p *Program) ReadsHealth(kind keys.Kind, key string, of func(*RuleSet) bool) (features []string, reads bool) {
	for _, r := range p.rules {
		if !r.readsHealth || !r.names(kind, key) && !r.open(kind) || !of(r.set) {
			continue
		}
		reads = true
		for _, name := range r.reads {
			if facts.IsHealth(name) {
				features = append(features, name)
			}
		}
	}
	slices.Sort(features)
	return slices.Compact(features), reads
}
