package rules

import (
	"fmt"
	"slices"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
)

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
