package rules

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
)

// Ref identifies a rule in messages.
type Ref struct {
	// Object is the name of the NodeFeatureRule. It is empty for labels that a NodeFeature requests directly.
	Object string `json:"object"`
	// Rule is the name of the rule in the object.
	Rule string `json:"rule"`
	// Index is its index in the object's list.
	Index int `json:"-"`
	// Base is the template that the rule came from, if any.
	Base string `json:"base,omitempty"`
}

// String returns object/rule.
func (r Ref) String() string {
	if r.Rule == "" {
		return r.Object
	}
	return r.Object + "/" + r.Rule
}

// Rejection is an output of a matching rule that is not written.
type Rejection struct {
	Ref
	Kind keys.Kind `json:"kind"`
	// Key is the key as the author wrote it.
	Key string `json:"key"`
	// Reason explains why, and what to write instead.
	Reason string `json:"reason"`
	// Missing marks an output whose value refers to something that the node does not have. This is not an error.
	Missing bool `json:"missing,omitempty"`
}

// Conflict reports that two rules set different values for a key.
type Conflict struct {
	Kind keys.Kind `json:"kind"`
	Key  string    `json:"key"`
	// Kept is the rule whose value is written, Lost the other one.
	Kept Ref `json:"kept"`
	Lost Ref `json:"lost"`
}

// Event is a Kubernetes Event that a rule creates.
type Event struct {
	Ref
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Message is a log line that a rule writes.
type Message struct {
	Ref
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Failure reports that a rule's fail action prevents all writes to the node.
type Failure struct {
	Ref
	Message string `json:"message"`
}

// RuleOutcome is the result of one rule on one node.
type RuleOutcome struct {
	Ref
	// Matched is set if the rule's outputs were produced.
	Matched bool
	// Skipped is the reason why the rule was skipped on this node, or "".
	Skipped string
	// Err is the error of the evaluation. It has no details if the rule is sensitive.
	Err error
	// Partial holds the errors of single instances, which then do not match.
	Partial error
	// Sensitive rules do not show their conditions and actions.
	Sensitive bool
}

// Origin identifies the rule that a written key came from.
type Origin struct {
	Ref
	// How describes where the value is set: "labels", "labelsTemplate", "actions[0]", "NodeFeature".
	How string `json:"how"`
}

// Outcome holds the outputs of the rules for one node, and their origins. It is immutable and safe for concurrent use. It refers to the
// program and to the facts of the node: with 100 rules it takes 45 kB, so a caller with many nodes keeps what it needs of it instead.
type Outcome struct {
	// Node is the name of the node.
	Node string
	// Failed is set if a fail action prevents all writes.
	Failed *Failure

	program   *Program
	facts     *Facts
	node      Node
	requested map[string]string // labels that NodeFeatures request
	results   []*result         // one for each rule of the program
	steps     int               // steps taken from the budget of the node

	once   sync.Once // guards merged, see get
	merged merged
}

func newOutcome(p *Program, in *Input) *Outcome {
	return &Outcome{
		Node: in.Node.Name, program: p, facts: in.Facts, node: in.Node, requested: in.Labels,
	}
}

// merged holds the merged outputs of all rules.
type merged struct {
	spaces    map[keys.Kind]*keyspace
	taints    []corev1.Taint
	rejected  []Rejection
	conflicts []Conflict
}

// Labels returns the labels to write, with their namespace.
func (o *Outcome) Labels() map[string]string { return o.get().spaces[keys.Label].values }

// Annotations returns the annotations to write, with their namespace.
func (o *Outcome) Annotations() map[string]string { return o.get().spaces[keys.Annotation].values }

// ExtendedResources returns the extended resources to advertise, with their namespace.
func (o *Outcome) ExtendedResources() map[string]string { return o.get().spaces[keys.Resource].values }

// Vars returns the variables of all rules, for back-references and messages.
func (o *Outcome) Vars() map[string]string { return o.get().spaces[keys.Var].values }

// NodeConditions returns what the conditions of the Node must say, by type, in the form "STATUS REASON: MESSAGE".
func (o *Outcome) NodeConditions() map[string]string { return o.get().spaces[keys.Condition].values }

// Taints returns the taints to create, in the order of the rules.
func (o *Outcome) Taints() []corev1.Taint { return o.get().taints }

// Rejected returns the rejected outputs in rule order.
func (o *Outcome) Rejected() []Rejection { return o.get().rejected }

// Conflicts returns the conflicts between rules, by kind and key.
func (o *Outcome) Conflicts() []Conflict { return o.get().conflicts }

// Origin returns where the value of a written key came from.
func (o *Outcome) Origin(kind keys.Kind, key string) (Origin, bool) {
	space := o.get().spaces[kind]
	if space == nil {
		return Origin{}, false
	}
	c, ok := space.find(key)
	return Origin{Ref: c.ref(), How: c.how}, ok
}

// Rules returns the result of each rule in evaluation order.
func (o *Outcome) Rules() []RuleOutcome {
	out := make([]RuleOutcome, len(o.results))
	for i := range out {
		out[i] = o.rule(i)
	}
	return out
}

func (o *Outcome) rule(i int) RuleOutcome {
	rule, r := o.program.rules[i], o.results[i]
	return RuleOutcome{
		Ref: rule.ref, Matched: r.matched, Skipped: r.skipped, Err: r.err, Partial: r.partial, Sensitive: rule.set.sensitive,
	}
}

// Faulty returns the results of the rules whose evaluation failed, at least for some instances, in evaluation order.
func (o *Outcome) Faulty() (out []RuleOutcome) {
	for i, r := range o.results {
		if r.err != nil || r.partial != nil {
			out = append(out, o.rule(i))
		}
	}
	return out
}

// Program returns the rules that were evaluated.
func (o *Outcome) Program() *Program { return o.program }

// Matched calls f with the name of each object of which at least one rule matched.
func (o *Outcome) Matched(f func(object string)) {
	last := -1
	for i, r := range o.results {
		set := o.program.rules[i].set.index
		if r.matched && set != last {
			last = set
			f(o.program.rules[i].set.Name)
		}
	}
}

// Events returns the Events that rules create, in order.
func (o *Outcome) Events() []Event {
	var out []Event
	for i, r := range o.results {
		for _, e := range r.events {
			e.Ref = o.program.rules[i].ref
			out = append(out, e)
		}
	}
	return out
}

// Messages returns the messages that rules log, in order.
func (o *Outcome) Messages() []Message {
	var out []Message
	for i, r := range o.results {
		for _, m := range r.messages {
			m.Ref = o.program.rules[i].ref
			out = append(out, m)
		}
	}
	return out
}

func (o *Outcome) get() *merged {
	o.once.Do(func() { o.merged = o.merge() })
	return &o.merged
}
