package rules

import (
	"encoding/binary"

	"github.com/assay-project/assay/rules/facts"
)

// EvalEach evaluates all rules on nodes, in order, and calls f with the index and the outcome of each until f returns false.
//
// It evaluates nodes whose inputs are equal once: the features that the rules read and the labels that NodeFeatures request, compared by
// value if the facts come from one facts.Interner. Someone waits for all nodes together, and a fleet has tens of kinds of servers. Nothing
// outlives the call.
func (p *Program) EvalEach(inputs []*Input, f func(i int, o *Outcome) bool) {
	known := map[string]*Outcome{}
	for i, in := range inputs {
		if p.perNode {
			if !f(i, p.Eval(*in)) {
				return
			}
			continue
		}
		key := p.batchKey(in)
		o := known[key]
		if o == nil {
			o = p.Eval(*in)
			known[key] = o
		} else {
			same := newOutcome(p, in)
			same.results, same.steps, same.Failed = o.results, o.steps, o.Failed
			o = same
		}
		if !f(i, o) {
			return
		}
	}
}

// batchKey encodes everything that an outcome depends on, except for the program, if no rule reads the node itself or its publishers.
func (p *Program) batchKey(in *Input) string {
	var key []byte
	for _, name := range p.reads {
		for _, id := range in.Facts.Feature(name).ID() {
			key = binary.LittleEndian.AppendUint64(key, id)
		}
	}
	for _, name := range facts.SortedKeys(in.Labels) {
		for _, text := range []string{name, in.Labels[name]} {
			key = binary.AppendUvarint(key, uint64(len(text)))
			key = append(key, text...)
		}
	}
	return string(key)
}
