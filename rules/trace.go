package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
)

// The parts of a RuleTrace.
type (
	// TermTrace explains the result of one term of matchFeatures or matchAny.
	TermTrace = match.TermTrace
	// ExpressionTrace explains the result of one expression of a term.
	ExpressionTrace = match.ExprTrace
	// ConditionTrace is the evaluation of one condition.
	ConditionTrace = condition.Trace
)

// RuleTrace explains the result of one rule on one node, for display.
type RuleTrace struct {
	RuleOutcome
	// MatchFeatures and MatchAny explain the result of each term.
	MatchFeatures []TermTrace
	MatchAny      [][]TermTrace
	// Conditions explain the result of each condition. It is empty for sensitive rules.
	Conditions []ConditionTrace
	// Why describes the first requirement of the rule that the node does not meet.
	Why string
	// Outputs are the keys that the rule sets, with their values.
	Outputs []TracedOutput
	// Rejected are outputs that are not written.
	Rejected []Rejection
}

// TracedOutput is one key with its value.
type TracedOutput struct {
	Kind  keys.Kind `json:"kind"`
	Key   string    `json:"key"`
	Value string    `json:"value"`
	How   string    `json:"how"`
	// Reads is what the value is computed from on the node, up to eight; empty: the value is the same on all nodes that the rule matches.
	Reads []Read `json:"reads,omitempty"`
}

// Trace evaluates all rules for one node and explains each result, in evaluation order. The results equal those of Eval, which is
// faster.
func (p *Program) Trace(in Input) []RuleTrace {
	o := p.Eval(in)
	outcomes := o.Rules()
	e := &evaluation{program: p, in: &in, src: facts.NewOverlay(in.Facts), nodeBudget: NodeBudget}
	out := make([]RuleTrace, len(p.rules))
	for i, r := range p.rules {
		out[i] = e.trace(r, o.results[i])
		out[i].RuleOutcome = outcomes[i]
		e.follow(r, o.results[i])
	}
	return out
}

// trace explains the result of a rule, given the outputs of earlier rules.
func (e *evaluation) trace(r *rule, res *result) RuleTrace {
	t := RuleTrace{Rejected: r.set.concealed(res.rejected)}
	if res.skipped != "" {
		return t
	}
	e.begin(r)
	src := e.sourceFor(r.set)
	if r.features != nil {
		t.MatchFeatures = r.features.Trace(src)
	}
	for _, m := range r.any {
		t.MatchAny = append(t.MatchAny, m.Trace(src))
	}
	if r.loop == nil && !r.set.sensitive {
		for _, c := range r.conditions {
			t.Conditions = append(t.Conditions, c.Trace(e))
		}
	}
	if !res.matched && res.err == nil {
		e.looked = 0
		t.Why = e.whyNot(r)
		if r.set.sensitive {
			t.Why = "it does not match"
		}
	}
	seen := e.seen(r, res)
	if seen == nil {
		seen = &sight{}
	}
	for i, out := range res.outputs {
		switch out.op {
		case opVoid:
			continue // listed in Rejected
		case opLate:
			out.value = cmp.Or(out.told, "@rule.matched."+out.value)
		}
		t.Outputs = append(t.Outputs, TracedOutput{out.kind, out.key, out.value, out.how, seen.outputs[i]})
	}
	for _, taint := range res.taints {
		t.Outputs = append(t.Outputs, TracedOutput{keys.Taint, taint.Key, taint.Value + ":" + string(taint.Effect), "taints", seen.taints[taint.Key]})
	}
	return t
}

// Absence is a rule that may write a key, and does not write it on a node.
type Absence struct {
	Ref
	// Feature is the first feature of the rule whose term does not hold, or that it reads and the node does not have; empty: none.
	Feature string
}

// Absences returns the rules whose source shows that they may write a key, in evaluation order, for a node on which they do not.
func (p *Program) Absences(in Input, kind keys.Kind, key string) []Absence {
	var out []Absence
	for i, t := range p.Trace(in) {
		r := p.rules[i]
		if t.Skipped != "" || !r.names(kind, key) && !r.open(kind) {
			continue
		}
		a := Absence{Ref: t.Ref}
		for _, terms := range append([][]TermTrace{t.MatchFeatures}, t.MatchAny...) {
			for _, term := range terms {
				if !term.Held && !t.Matched && a.Feature == "" {
					a.Feature = term.Feature
				}
			}
		}
		for _, name := range r.reads {
			if a.Feature == "" && (in.Facts.Feature(name) == nil || len(r.reads) == 1) {
				a.Feature = name
			}
		}
		out = append(out, a)
	}
	return out
}

// follow adds the outputs of a rule, without evaluating it.
func (e *evaluation) follow(r *rule, res *result) {
	e.show(r, res)
	_ = e.derive(res.derived) // cannot fail: the rule succeeded before
}

// Mention says whether a rule can write a key.
type Mention int

// The mentions.
const (
	// NotMentioned means that the rule does not write the key.
	NotMentioned Mention = iota
	// Computed means that the rule computes names of keys, so that any key of the kind is possible.
	Computed
	// Named means that the source of the rule shows that it may write the key.
	Named
)

// Mentions returns for each rule, in the order of Trace, whether it can write a key on some node.
func (p *Program) Mentions(kind keys.Kind, key string) []Mention {
	out := make([]Mention, len(p.rules))
	for i, r := range p.rules {
		switch {
		case r.names(kind, key):
			out[i] = Named
		case r.computes(kind):
			out[i] = Computed
		}
	}
	return out
}

// computes reports whether the rule computes names of keys of a kind, so that its source does not show all of them.
func (r *rule) computes(kind keys.Kind) bool {
	switch kind {
	case keys.Taint:
		return len(r.actions) > 0 || slices.ContainsFunc(r.taints, func(t taint) bool { return !t.key.IsLiteral() })
	case keys.Condition:
		return len(r.actions) > 0 || slices.ContainsFunc(r.nodeConditions, func(n nodeCondition) bool { return !n.kind.IsLiteral() })
	}
	return r.open(kind)
}

// Read is what an output of a rule has read on a node, for display: an element of a feature with its value, or a whole feature with its size.
type Read struct {
	Feature string `json:"feature"`
	// Element is the name of an attribute or flag; empty: the whole feature.
	Element string `json:"element,omitempty"`
	Value   string `json:"value"`
}

// String returns for example cpu.model.vendor_id=Intel.
func (r Read) String() string {
	if r.Element == "" {
		return r.Feature + ": " + r.Value
	}
	return r.Feature + "." + r.Element + "=" + r.Value
}

// maxReads is the maximum number of reads of one output: enough to see where a value comes from. A template can read thousands of elements.
const maxReads = 8

// sight records what each output of a rule reads, while a trace evaluates the rule again. Outputs are in the order of the evaluation: those from
// one mark to the next have what was read in between.
type sight struct {
	now     []Read
	from    int // the first output since the last mark
	outputs map[int][]Read
	taints  map[string][]Read // by key
	vars    map[string][]Read // of the rule, by name
}

// add records that the current output reads a value.
func (s *sight) add(r Read) {
	if len(s.now) < maxReads && !slices.Contains(s.now, r) {
		s.now = append(s.now, r)
	}
}

// mark ends what the outputs up to the last of the result have read.
func (e *evaluation) mark() {
	s := e.sight
	if s == nil {
		return
	}
	for i := s.from; i < len(e.result.outputs); i++ {
		s.outputs[i] = s.now
		if out := &e.result.outputs[i]; out.kind == keys.Var {
			s.vars[out.key] = s.now
		}
	}
	s.now, s.from = nil, len(e.result.outputs)
}

// markTemplate records what a template reads for all of its outputs.
func (e *evaluation) markTemplate(runs [][]match.FeatureElements) {
	if e.sight == nil {
		return
	}
	for _, run := range runs {
		for _, f := range run {
			for _, element := range f.Elements {
				if element.Name != "" {
					e.sight.add(Read{f.Feature, element.Name, valueOf(element)})
				}
			}
			if len(f.Elements) > 0 && f.Elements[0].Name == "" {
				e.sight.add(Read{Feature: f.Feature, Value: fmt.Sprintf("%d matched", len(f.Elements))})
			}
		}
	}
}

func valueOf(element match.Element) string {
	if element.HasValue {
		return element.Value
	}
	return "true"
}

// seen evaluates a rule that matches again, and returns what each of its outputs reads, by the index of its output, and of its taints by key. It
// returns nil for a rule whose outputs are the same on all nodes, and for one that is sensitive.
func (e *evaluation) seen(r *rule, res *result) *sight {
	if !res.matched || r.fixed != nil || r.set.sensitive {
		return nil
	}
	if matched, err := e.matches(r, e.sourceFor(r.set)); err != nil || !matched {
		return nil
	}
	s := &sight{outputs: map[int][]Read{}, taints: map[string][]Read{}, vars: map[string][]Read{}}
	e.result, e.sight = &result{matched: true}, s
	defer func() { e.sight = nil }()
	if err := e.produce(r); err != nil || len(e.result.outputs) != len(res.outputs) {
		return nil
	}
	e.mark()
	return s
}

// see records a value that an expression reads.
func (e *evaluation) see(feature, element string, v expr.Value, ok bool) {
	if e.sight == nil || !ok {
		return
	}
	text := v.String()
	switch v.Kind() {
	case expr.Masked:
		text = "(masked)"
	case expr.MapKind, expr.ListKind:
		text = fmt.Sprintf("%d elements", v.Len())
	}
	e.sight.add(Read{feature, element, text})
}

// seeVar records what a variable of the rule has read.
func (e *evaluation) seeVar(name string) {
	if e.sight == nil {
		return
	}
	for _, r := range e.sight.vars[name] {
		e.sight.add(r)
	}
}

// KeyNames returns the names of all keys that rules write and spell out, with their namespaces, sorted: what a node can have.
func (p *Program) KeyNames() []string {
	names := map[string]bool{}
	for _, r := range p.rules {
		for _, list := range [][]assignment{r.labels, r.annotations, r.resources} {
			for i := range list {
				if list[i].full != "" {
					names[list[i].full] = true
				}
			}
		}
	}
	return facts.SortedKeys(names)
}
