package imagespec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/assay-project/assay/rules"
)

// Verdict is the result of an image on one node.
type Verdict struct {
	// Met are the sets that the node meets, the one with the highest weight first, then in the order of the document.
	Met []*Set
	// Nearest is the set with the fewest rules that do not match, and Missing are these rules. They are empty if a set is met, and if
	// there are no sets.
	Nearest *Set
	Missing []Missing
}

// Missing is a rule of a set that does not match a node.
type Missing struct {
	Rule string `json:"rule"`
	// Why is the first part of the rule that does not hold.
	Why string `json:"why"`
}

// Fits reports whether the image fits the node.
func (v *Verdict) Fits() bool { return v.Nearest == nil }

// Select returns the sets with one of the tags, or all sets without tags. It is an error if none has one of them: without sets, the
// image would fit every node.
func (d *Document) Select(tags []string) ([]*Set, error) {
	if len(tags) == 0 || len(d.Sets) == 0 {
		return d.Sets, nil
	}
	var out []*Set
	var known []string
	for _, s := range d.Sets {
		if slices.Contains(tags, s.Tag) {
			out = append(out, s)
		}
		if s.Tag != "" && !slices.Contains(known, s.Tag) {
			known = append(known, s.Tag)
		}
	}
	if out == nil {
		if known == nil {
			return nil, errors.New("the sets have no tags: omit --tags")
		}
		return nil, fmt.Errorf("no set has the tag %q: use one of %q", tags, known)
	}
	return out, nil
}

// Check evaluates sets on nodes, in order. It evaluates nodes with equal features once.
func Check(sets []*Set, inputs []*rules.Input) []Verdict {
	own := make([]*rules.Input, len(inputs))
	for i, in := range inputs {
		own[i] = image(in)
	}
	ranked := slices.Clone(sets)
	slices.SortStableFunc(ranked, func(a, b *Set) int { return cmp.Compare(b.Weight, a.Weight) })
	out := make([]Verdict, len(inputs))
	unmet := make([]int, len(inputs)) // rules of the nearest set that do not match
	for _, s := range ranked {
		s.program.EvalEach(own, func(i int, o *rules.Outcome) bool {
			n := 0
			for _, r := range o.Rules() {
				if !r.Matched {
					n++
				}
			}
			v := &out[i]
			switch {
			case n == 0:
				v.Met = append(v.Met, s)
			case v.Nearest == nil || n < unmet[i]:
				v.Nearest, unmet[i] = s, n
			}
			return true
		})
	}
	for i := range out {
		if v := &out[i]; len(v.Met) > 0 {
			v.Nearest = nil
		} else if v.Nearest != nil {
			v.Missing = v.Nearest.missing(own[i])
		}
	}
	return out
}

// image returns the input without what NodeFeatures request directly, which rules could read as rule.matched.
func image(in *rules.Input) *rules.Input {
	out := *in
	out.Labels = nil
	return &out
}

func (s *Set) missing(in *rules.Input) (out []Missing) {
	for _, t := range s.program.Trace(*in) {
		if t.Matched {
			continue
		}
		why := t.Why
		if t.Err != nil {
			why = t.Err.Error()
		}
		out = append(out, Missing{t.Rule, why})
	}
	return out
}

// Trace explains the result of each rule of the set on one node, in order.
func (s *Set) Trace(in rules.Input) []rules.RuleTrace { return s.program.Trace(*image(&in)) }
