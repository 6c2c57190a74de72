package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
)

// result is the result of one rule on one node. It is immutable once it is in an Outcome, and nodes may share it.
type result struct {
	matched bool
	skipped string
	// undecided is set if it is unknown whether the rule matches; skipped says why.
	undecided bool
	err       error
	partial   error // errors of single instances

	outputs  []output
	taints   []corev1.Taint
	rejected []Rejection
	events   []Event
	messages []Message
	failed   *Failure
	derived  []derivation
	// vars are the variables that the rule sets, with their kinds; a variable that it removes has the kind Missing.
	vars map[string]expr.Value

	steps int // steps taken from the budget of its node
}

// output is one change to the outcome.
type output struct {
	kind  keys.Kind
	op    outputOp
	key   string // with its namespace
	raw   string // as the author wrote it, for back-references
	value string
	how   string
	// told is the value that back-references see instead: NFD passes them the reference, not its value.
	told string
}

// forBackreferences returns the value of an output in rule.matched.
func (o *output) forBackreferences() string {
	if o.told != "" {
		return o.told
	}
	return o.value
}

type outputOp uint8

const (
	opSet outputOp = iota
	opDelete
	opAppend       // adds to a comma-separated list
	opAppendUnique // adds to a comma-separated list unless it is there
	// opVoid removes the key of earlier rules and sets no value, because this rule's value cannot be written.
	opVoid
	// opLate sets the value of the rule.matched name in value after all rules have run, as NFD does: a later rule may set it.
	opLate
)

// claim records which rule set the value of a key.
type claim struct {
	key      string // empty: unclaimed
	rule     *rule  // nil: a NodeFeature
	how      string
	priority int32
}

func (c claim) ref() Ref {
	if c.rule == nil {
		return Ref{}
	}
	return c.rule.ref
}

// keyspace holds one of the maps of outputs.
type keyspace struct {
	values map[string]string
	claims []claim
	// at finds a claim by its key. It is built when the first key is written by two rules: this is rare, and the map would double
	// the cost.
	at map[string]int
}

func newKeyspace(size int) *keyspace {
	if size == 0 {
		return &keyspace{}
	}
	return &keyspace{values: make(map[string]string, size), claims: make([]claim, 0, size)}
}

// held returns the claim on a key during a merge.
func (k *keyspace) held(key string) (c claim, taken bool) {
	if _, taken = k.values[key]; !taken {
		return claim{}, false
	}
	return k.claims[k.place(key)], true
}

// place returns the index of the claim on a key that is taken.
func (k *keyspace) place(key string) int {
	if k.at == nil {
		k.at = make(map[string]int, len(k.claims))
		for i := range k.claims {
			k.at[k.claims[i].key] = i
		}
	}
	return k.at[key]
}

// find returns the claim on a key. Unlike held, it changes nothing and is safe for concurrent use.
func (k *keyspace) find(key string) (claim, bool) {
	i := slices.IndexFunc(k.claims, func(c claim) bool { return c.key == key && key != "" })
	if i < 0 {
		return claim{}, false
	}
	return k.claims[i], true
}

func (k *keyspace) set(value string, c claim) {
	if _, taken := k.values[c.key]; !taken {
		k.add(value, c)
		return
	}
	k.claims[k.place(c.key)], k.values[c.key] = c, value
}

// add sets a key that has no claim yet.
func (k *keyspace) add(value string, c claim) {
	if k.values == nil {
		k.values = map[string]string{}
	}
	if k.at != nil {
		k.at[c.key] = len(k.claims)
	}
	k.claims, k.values[c.key] = append(k.claims, c), value
}

func (k *keyspace) unset(key string) {
	if _, taken := k.values[key]; !taken {
		return
	}
	k.claims[k.place(key)].key = ""
	delete(k.at, key)
	delete(k.values, key)
}

// merger merges the results of all rules.
type merger struct {
	merged
	taintAt map[string]int // key and effect -> place
	last    matchedState   // rule.matched once all rules have run, if an output refers to it
}

func (o *Outcome) merge() merged {
	m := &merger{taintAt: map[string]int{}}
	sizes := map[keys.Kind]int{keys.Label: len(o.requested)}
	late := false
	for _, r := range o.results {
		for i := range r.outputs {
			sizes[r.outputs[i].kind]++
			late = late || r.outputs[i].op == opLate
		}
	}
	m.spaces = map[keys.Kind]*keyspace{}
	for _, kind := range []keys.Kind{keys.Label, keys.Annotation, keys.Resource, keys.Var, keys.Taint, keys.Condition} {
		m.spaces[kind] = newKeyspace(sizes[kind])
	}
	if o.Failed != nil {
		return m.merged // nothing is written
	}
	m.request(o)
	if late {
		for i, r := range o.results {
			m.last.add(o.program.rules[i], r)
		}
	}
	for i, r := range o.results {
		rule := o.program.rules[i]
		m.rejected = append(m.rejected, withRef(rule.set.concealed(r.rejected), rule.ref)...)
		for i := range r.outputs {
			m.apply(&r.outputs[i], rule)
		}
		for _, t := range r.taints {
			m.taint(t, rule)
		}
	}
	m.fit()
	slices.SortStableFunc(m.conflicts, func(a, b Conflict) int {
		return strings.Compare(string(a.Kind)+a.Key, string(b.Kind)+b.Key)
	})
	return m.merged
}

// request adds the labels that NodeFeatures request directly. Labels of rules win over them.
func (m *merger) request(o *Outcome) {
	policy := &o.program.opt.Keys
	for _, name := range facts.SortedKeys(o.requested) {
		value, reason := o.requested[name], ""
		if path, isRef := strings.CutPrefix(value, "@"); isRef {
			value, reason = o.resolve(path)
		}
		verdict := policy.Label(name, value)
		if reason == "" {
			reason = verdict.Message()
		}
		if reason != "" {
			m.rejected = append(m.rejected, Rejection{Kind: keys.Label, Key: name, Reason: reason})
			continue
		}
		m.spaces[keys.Label].set(value, claim{key: verdict.Key, how: requestedBy, priority: lowestPriority})
	}
}

// requestedBy is the origin of labels that no rule set.
const requestedBy = "NodeFeature"

// resolve returns the value of an attribute that a NodeFeature refers to as @domain.feature.element. The attribute can be that of another
// publisher: masking applies as to rules.
func (o *Outcome) resolve(path string) (value, reason string) {
	ref, err := expr.ParseRef(path)
	if err != nil {
		return "", err.Error()
	}
	if ref.Feature == nfdv1alpha1.RuleMatchedFeature {
		if v, ok := o.told().values[ref.Element]; ok {
			return v, ""
		}
	} else if f := o.facts.Feature(ref.Feature); f != nil {
		if v, ok := f.Attributes.Get(ref.Element); ok {
			if mask := &o.program.opt.Mask; mask.applies(false) && mask.masks(ref.Element) {
				return "", errMasked.Error()
			}
			return v, ""
		}
	}
	return "", "no value for @" + path
}

func withRef(list []Rejection, ref Ref) []Rejection {
	out := slices.Clone(list)
	for i := range out {
		out[i].Ref = ref
	}
	return out
}

// apply applies one output, unless a rule of higher priority has set the key. On equal priority, the later output wins.
func (m *merger) apply(out *output, r *rule) {
	space := m.spaces[out.kind]
	mine := claim{out.key, r, out.how, r.set.priority}
	held, taken := space.held(out.key)
	switch out.op {
	case opDelete, opVoid:
		if !taken || held.priority > mine.priority {
			return
		}
		if out.op == opVoid && held.rule != nil && held.rule.set != r.set {
			m.conflicts = append(m.conflicts, Conflict{out.kind, out.key, mine.ref(), held.ref()})
		}
		space.unset(out.key)
		return
	case opLate:
		m.apply(m.resolve(out, r), r)
		return
	case opAppend, opAppendUnique:
		list, fits := appendItem(space.values[out.key], out.value, out.op == opAppendUnique)
		if !fits {
			m.overflow(out, r)
			return
		}
		mine.priority = max(held.priority, mine.priority)
		space.set(list, mine)
		return
	}
	if !taken {
		space.add(out.value, mine)
		return
	}
	kept, lost := mine, held
	if held.priority > mine.priority {
		kept, lost = held, mine
	}
	if held.rule != nil && held.rule.set != r.set && space.values[out.key] != out.value && !isDefault(out.kind, kept, lost) {
		m.conflicts = append(m.conflicts, Conflict{out.kind, out.key, kept.ref(), lost.ref()})
	}
	if kept == mine {
		space.set(out.value, mine)
	}
}

// isDefault reports whether an output that is lost is the default of a condition: that of a rule without matchers, which a rule of higher
// priority overrides on some nodes. Both are right, and neither of their authors can do better.
func isDefault(kind keys.Kind, kept, lost claim) bool {
	return kind == keys.Condition && lost.priority < kept.priority && lost.rule.matchesAll()
}

// overflow reports, once per rule, that a comma-separated list is full.
func (m *merger) overflow(out *output, r *rule) {
	no := r.set.conceal(Rejection{
		Ref: r.ref, Kind: out.kind, Key: out.raw, Reason: fmt.Sprintf("the list would be longer than %d bytes", keys.MaxAnnotationValue),
	})
	if n := len(m.rejected); n == 0 || m.rejected[n-1] != no {
		m.rejected = append(m.rejected, no)
	}
}

// appendItem adds an item to a comma-separated list and reports whether it fits. Only annotations can be lists.
func appendItem(list, item string, unique bool) (_ string, fits bool) {
	if list == "" {
		return item, true
	}
	if unique {
		for old := range strings.SplitSeq(list, ",") {
			if old == item {
				return list, true
			}
		}
	}
	if len(list)+len(",")+len(item) > keys.MaxAnnotationValue {
		return list, false
	}
	return list + "," + item, true
}

// taint adds a taint. Taints with the same key and effect replace each other.
func (m *merger) taint(t corev1.Taint, r *rule) {
	key := keys.TaintName(t)
	m.apply(&output{kind: keys.Taint, key: key, value: t.Value, how: "taints"}, r)
	if at, ok := m.taintAt[key]; ok {
		m.taints[at].Value = m.spaces[keys.Taint].values[key]
		return
	}
	m.taintAt[key] = len(m.taints)
	m.taints = append(m.taints, t)
}

// resolve returns a late output with its value, or without a value if there is no valid one.
func (m *merger) resolve(late *output, r *rule) *output {
	out := *late
	value, ok := m.last.values[late.value]
	out.op, out.value, out.told = opSet, value, ""
	reason := "no rule that matched has given rule.matched." + late.value
	if ok {
		verdict := checkValue(r.keys, out.kind, out.raw, value)
		reason = verdict.Message()
	}
	if reason != "" {
		out.op = opVoid
		m.rejected = append(m.rejected, r.set.conceal(Rejection{
			Ref: r.ref, Kind: out.kind, Key: out.raw, Reason: reason, Missing: !ok,
		}))
	}
	return &out
}

// matchedState holds the content of rule.matched during the evaluation of one node.
type matchedState struct {
	values     map[string]string
	priorities map[string]int32
	exists     bool
	// kinds holds the lists and maps among the values, as expressions see them.
	kinds map[string]expr.Value
	// only holds the names that rules look up; nil keeps all.
	only map[string]bool
}

// add makes the outputs of a rule visible to later rules and reports whether anything changed. A key set by a rule of higher
// priority keeps its value, as on the node.
func (s *matchedState) add(r *rule, res *result) bool {
	if res.err != nil || res.skipped != "" {
		return false
	}
	changed := !s.exists
	s.exists = true
	for _, kind := range [...]keys.Kind{keys.Label, keys.Var} { // as in NFD, a variable wins over a label of the same name
		changed = s.addKind(kind, r, res) || changed
	}
	return changed
}

// addKind adds the outputs of one kind.
func (s *matchedState) addKind(kind keys.Kind, r *rule, res *result) (changed bool) {
	for i := range res.outputs {
		out := &res.outputs[i]
		if out.kind != kind || s.only != nil && !s.only[out.raw] {
			continue
		}
		if s.values == nil {
			s.values, s.priorities = map[string]string{}, map[string]int32{}
		}
		if held, ok := s.priorities[out.raw]; ok && held > r.set.priority || out.op == opLate && out.told == "" {
			continue
		}
		changed = true
		delete(s.kinds, out.raw)
		if out.op == opDelete || out.op == opVoid {
			delete(s.values, out.raw)
			delete(s.priorities, out.raw)
			continue
		}
		s.values[out.raw] = out.forBackreferences()
		s.keepKind(out, res)
		s.priorities[out.raw] = r.set.priority
	}
	return changed
}

// keepKind keeps the kind of a list or map variable: expressions cannot iterate over its string form.
func (s *matchedState) keepKind(out *output, res *result) {
	if v := res.vars[out.raw]; out.kind == keys.Var && (v.Kind() == expr.ListKind || v.Kind() == expr.MapKind) {
		if s.kinds == nil {
			s.kinds = map[string]expr.Value{}
		}
		s.kinds[out.raw] = v
	}
}

func (s *matchedState) snapshot() map[string]string { return maps.Clone(s.values) }
