package rules

import (
	"cmp"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/assay-project/assay/rules/facts"
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
