package index

import (
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// maxReads is of how many features a verdict is remembered. Requirements that read more are judged node by node.
	maxReads = 4
	// maxKinds bounds the verdicts that one requirement remembers: there are tens of kinds of nodes in a fleet.
	maxKinds = 1024
	// maxReasons bounds the texts of one requirement. They repeat what was asked, so there are as many as it has parts.
	maxReasons = 200
	// turnWork is how much work is done for a requirement that is new until others have their turn, in units of match.Work: some
	// milliseconds. Whoever may create a pod can ask for what takes long, and the pods of others must not wait for it.
	turnWork = 1 << 20
	// nodeWork is what a node costs besides being evaluated.
	nodeWork = 32
	// maxWork is how much work a requirement may be on all nodes together: some seconds. A pattern that is looked for on 60
	// network interfaces, different ones on each of 15,000 nodes, takes most of it.
	maxWork = 1 << 30
)

// lacksTime is what all nodes lack if a requirement is more work than that.
const lacksTime = "patterns that take too long to look for on all nodes"

// The reasons of nodes that have none of their own.
const (
	reasonNone    = 0 // the node has what is asked for, or there is no node
	reasonPending = 1 // it does not, and nobody has asked yet why
	reasonGeneric = 2
	firstReason   = 3
)

// set is which nodes have what one requirement asks for.
type set struct {
	req   *requirements.Requirement
	bits  []uint64
	why   []uint8 // reasons by node
	count int

	reasons []Reason
	byText  map[string]uint8
	holders []int   // how many nodes each reason is of
	pending []int32 // nodes whose reason nobody has asked for yet

	keys  []facts.Key // of the features it reads
	kinds map[kind]verdict
	used  atomic.Uint64

	built bool // all nodes have been judged; before that, only some have
	next  int  // the first number that has not been
	spent int  // work that took
	most  int  // work that a single node took
	// costly says that it was too much: nobody has what is asked for.
	costly bool

	pass     uint64
	passNode int32
}

// Reason is why a node does not have what is asked for.
type Reason struct {
	// Text is the message in full.
	Text string
	// Lacks is what the node does not have.
	Lacks string
	// JSON is Text as a JSON string, Nobody the same if it is true of every node.
	JSON, Nobody string
}

// kind is everything that a verdict depends on.
type kind [maxReads]facts.FeatureID

type verdict struct {
	ok     bool
	reason uint8
}

// prefix begins what users read in events. Part of the documentation; scripts may look for it.
const prefix = "node feature requirement not met"

func newReason(lacks string) Reason {
	text := prefix
	if lacks != "" {
		text += ": " + lacks
	}
	r := NewReason(text)
	r.Lacks, r.Nobody = lacks, quote(text+" (no node has it)")
	return r
}

// NotMet returns the reason of a pod whose requirements no node can meet, because of a problem with the requirements themselves.
func NotMet(problem string) *Reason {
	r := NewReason(prefix + ": " + problem)
	r.Lacks = problem
	return &r
}

// NewReason makes a reason of a text that has nothing to do with a single node.
func NewReason(text string) Reason { return Reason{Text: text, JSON: quote(text), Nobody: quote(text)} }

func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return `""` // no string fails
	}
	return string(data)
}

func newSet(req *requirements.Requirement) *set {
	s := &set{req: req, byText: map[string]uint8{}, kinds: map[kind]verdict{}}
	generic := newReason("")
	s.reasons = []Reason{generic, generic, generic}
	s.holders = make([]int, firstReason)
	for _, name := range req.Reads() {
		s.keys = append(s.keys, facts.MakeKey(name))
	}
	return s
}

// has reports whether a node has what is asked for.
func (s *set) has(i int32) bool { return s.bits[i/64]&(1<<(i%64)) != 0 }

// build judges nodes for a while, and reports whether all have been judged. It needs the lock.
func (s *set) build(v *Index) bool {
	for work := 0; s.next < len(v.nodes) && !s.costly; s.next++ {
		if work > turnWork {
			return false
		}
		if v.nodes[s.next].name == "" {
			continue
		}
		cost := s.judge(v, int32(s.next)) //nolint:gosec // see number
		work += cost + nodeWork
		s.most = max(s.most, cost)
		if s.spent += cost; s.spent > v.maxWork {
			s.giveUp(v)
		}
	}
	if n := len(v.nodes); n > 0 {
		s.grow(int32(n - 1)) //nolint:gosec // see number; the last ones may be free
	}
	s.built = true
	return true
}

// giveUp notes that nobody has what is asked for, because it is too much work to find out. It is so for all nodes, since replicas
// look at them in different orders.
func (s *set) giveUp(v *Index) {
	s.costly, s.kinds = true, map[kind]verdict{}
	for i := range v.nodes {
		if v.nodes[i].name != "" {
			s.judge(v, int32(i)) //nolint:gosec // see number
		}
	}
}

// grow makes room for a number.
func (s *set) grow(i int32) {
	for int(i)/64 >= len(s.bits) {
		s.bits = append(s.bits, 0)
		s.why = append(s.why, make([]uint8, 64)...)
	}
}

// judge finds out whether a node has what is asked for, and returns how much work that was.
func (s *set) judge(v *Index, i int32) (cost int) {
	s.grow(i)
	s.clear(i)
	if s.costly {
		s.note(i, verdict{reason: s.reason(lacksTime)})
		return 0
	}
	n := &v.nodes[i]
	k, memorable := s.kindOf(n)
	if memorable {
		if known, ok := s.kinds[k]; ok {
			s.note(i, known)
			return 0
		}
	}
	ok, cost, err := s.req.EvalCosting(n.in, n.matched)
	found := verdict{ok: ok && err == nil, reason: reasonPending}
	if memorable {
		if len(s.kinds) >= maxKinds {
			clear(s.kinds)
		}
		s.kinds[k] = found
	}
	s.note(i, found)
	return cost
}

// kindOf returns everything that the verdict on a node depends on, or false if that is the node itself.
func (s *set) kindOf(n *node) (k kind, ok bool) {
	if len(s.keys) > maxReads || s.req.PerNode() || s.req.ReadsMatched() {
		return k, false
	}
	for i, key := range s.keys {
		k[i] = facts.Lookup(n.in.Facts, key).ID()
	}
	return k, true
}

func (s *set) note(i int32, found verdict) {
	if found.ok {
		s.bits[i/64] |= 1 << (i % 64)
		s.count++
		return
	}
	s.why[i] = found.reason
	s.holders[found.reason]++
	if found.reason == reasonPending {
		s.pending = append(s.pending, i)
	}
}

// clear forgets the verdict on a node.
func (s *set) clear(i int32) {
	if int(i)/64 >= len(s.bits) {
		return
	}
	if s.has(i) {
		s.bits[i/64] &^= 1 << (i % 64)
		s.count--
	}
	if s.why[i] != reasonNone {
		s.holders[s.why[i]]--
		if s.why[i] == reasonPending {
			s.pending = slices.DeleteFunc(s.pending, func(other int32) bool { return other == i })
		}
		s.why[i] = reasonNone
	}
}

// explain finds for a while the reasons that nobody has asked for yet, and reports whether none is left. It needs the lock.
func (s *set) explain(v *Index) bool {
	work := 0
	for n, i := range s.pending {
		if work > turnWork {
			s.pending = slices.Delete(s.pending, 0, n)
			return false
		}
		node := &v.nodes[i]
		k, memorable := s.kindOf(node)
		found := s.kinds[k]
		if !memorable || found.reason == reasonPending || found.reason == reasonNone {
			found = verdict{reason: s.reason(s.req.Lacks(node.in, node.matched))}
			work += 2 * s.most // it is evaluated, and looked through
			if memorable {
				s.kinds[k] = found
			}
		}
		work += nodeWork
		s.holders[reasonPending]--
		s.holders[found.reason]++
		s.why[i] = found.reason
	}
	s.pending = s.pending[:0]
	return true
}

// reason returns the number of a text.
func (s *set) reason(lacks string) uint8 {
	if r, ok := s.byText[lacks]; ok {
		return r
	}
	if len(s.reasons) >= maxReasons {
		return reasonGeneric
	}
	r := uint8(len(s.reasons)) //nolint:gosec // below maxReasons
	s.reasons = append(s.reasons, newReason(lacks))
	s.holders = append(s.holders, 0)
	s.byText[lacks] = r
	return r
}

// set returns the set of a requirement, and makes it if there is none: build must be called until it is built. It needs the lock.
func (v *Index) set(req *requirements.Requirement) *set {
	v.clock++
	if s := v.sets[req.Key]; s != nil {
		s.used.Store(v.clock)
		return s
	}
	for len(v.sets) >= maxSets || len(v.sets) > 0 && v.bytes()+req.Size() > maxSetBytes {
		v.forgetOldest()
	}
	s := newSet(req)
	s.used.Store(v.clock)
	v.sets[req.Key] = s
	for i, name := range req.Reads() {
		if v.readers[name] == nil {
			v.readers[name] = &reader{key: s.keys[i]}
		}
		v.readers[name].sets = append(v.readers[name].sets, s)
	}
	if req.PerNode() {
		v.perNode = append(v.perNode, s)
	}
	if req.ReadsMatched() {
		v.chained = append(v.chained, s)
		if len(v.chained) == 1 {
			v.produce(func(int32) {})
		}
	}
	s.bits = make([]uint64, 0, (len(v.nodes)+63)/64)
	s.why = make([]uint8, 0, 64*cap(s.bits))
	return s
}

// The bytes that a set takes in addition to its requirement: the fixed part, a remembered verdict, and a byte of a reason, which is kept in
// four forms.
const (
	setBytes     = 1024
	verdictBytes = 176
	reasonBytes  = 4
)

// bytes returns how much memory the set takes.
func (s *set) bytes() int {
	n := setBytes + s.req.Size() + 8*cap(s.bits) + cap(s.why) + 4*cap(s.pending) + verdictBytes*len(s.kinds)
	for i := range s.reasons {
		n += reasonBytes * len(s.reasons[i].Text)
	}
	return n
}

// bytes returns how much memory all sets take.
func (v *Index) bytes() (n int) {
	for _, s := range v.sets {
		n += s.bytes()
	}
	return n
}

// Sweep forgets the requirements that nothing has asked for since the last Sweep.
func (v *Index) Sweep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.sets {
		if s.used.Load() <= v.mark {
			v.forget(s)
		}
	}
	v.mark = v.clock
	v.clock++ // for those that are used without a new set
}

func (v *Index) forgetOldest() {
	var oldest *set
	for _, s := range v.sets {
		if oldest == nil || s.used.Load() < oldest.used.Load() {
			oldest = s
		}
	}
	v.forget(oldest)
}

func (v *Index) forget(oldest *set) {
	delete(v.sets, oldest.req.Key)
	without := func(list []*set) []*set {
		return slices.DeleteFunc(list, func(s *set) bool { return s == oldest })
	}
	for name, r := range v.readers {
		if r.sets = without(r.sets); len(r.sets) == 0 {
			delete(v.readers, name)
		}
	}
	v.perNode, v.chained = without(v.perNode), without(v.chained)
	if len(v.chained) == 0 {
		for i := range v.nodes { // an outcome refers to its rules, which may be deleted
			v.nodes[i].outcome, v.nodes[i].matched = nil, nil
		}
	}
}
