package index

import (
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// maxReads is the maximum number of features in a cache key. Requirements that read more are evaluated for each node.
	maxReads = 4
	// maxKinds is the maximum number of cached results of one requirement: a fleet has tens of kinds of nodes.
	maxKinds = 1024
	// maxReasons is the maximum number of reasons of one requirement. A reason repeats a part of the requirement, so there are as
	// many as it has parts.
	maxReasons = 200
	// turnWork is the maximum work in one batch for a new requirement, in units of match.Work: some milliseconds. Any user who can
	// create a pod can use an expensive requirement, which must not delay the pods of others.
	turnWork = 1 << 20
	// nodeWork is the work for a node in addition to its evaluation.
	nodeWork = 32
	// rulesWork is the work of evaluating the rules of the cluster on a node, 0.15 ms with 100 rules.
	rulesWork = 1 << 15
	// maxWork is the maximum work for a requirement on all nodes together: some seconds. A pattern that is matched with 60 network
	// interfaces, different ones on each of 15,000 nodes, takes most of it.
	maxWork = 1 << 30
)

// lacksTime is the reason for all nodes if a requirement exceeds this limit.
const lacksTime = "patterns that are too expensive to evaluate on all nodes"

// Reasons that are independent of the requirement.
const (
	reasonNone    = 0 // the node matches, or does not exist
	reasonPending = 1 // the node does not match, and the reason has not been determined yet
	reasonGeneric = 2
	firstReason   = 3
)

// set is the set of nodes that meet one requirement.
type set struct {
	req   *requirements.Requirement
	bits  []uint64
	why   []uint8 // by node: its reason
	count int

	reasons []Reason
	byText  map[string]uint8
	holders []int   // by reason: number of nodes
	pending []int32 // nodes whose reason has not been determined yet

	keys  []facts.Key // features that it reads
	kinds map[kind]verdict
	used  atomic.Uint64

	built bool // all nodes have been evaluated
	next  int  // number of the first node that has not been evaluated
	spent int  // total work so far
	most  int  // maximum work for a single node
	// costly is set if the work exceeded the limit: then no node matches.
	costly bool

	pass     uint64
	passNode int32
}

// Reason is why a node does not meet a requirement.
type Reason struct {
	// Text is the full message.
	Text string
	// Lacks is what the node lacks.
	Lacks string
	// JSON is Text as a JSON string, NoNode the message if it applies to all nodes.
	JSON, NoNode string
}

// kind is everything that the result depends on.
type kind [maxReads]facts.FeatureID

type verdict struct {
	ok     bool
	reason uint8
}

// prefix is the beginning of messages in events. It is documented, since scripts may search for it.
const prefix = "node feature requirement not met"

func newReason(lacks string) Reason {
	text := prefix
	if lacks != "" {
		text += ": " + lacks
	}
	r := plainReason(text)
	r.Lacks, r.NoNode = lacks, quote(text+" (no node has it)")
	return r
}

// NotMet returns the reason for a pod whose requirements no node can meet, because the requirements have a problem.
func NotMet(problem string) *Reason {
	r := plainReason(prefix + ": " + problem)
	r.Lacks = problem
	return &r
}

// plainReason returns a reason that does not depend on a node.
func plainReason(text string) Reason {
	return Reason{Text: text, JSON: quote(text), NoNode: quote(text)}
}

func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return `""` // encoding a string never fails
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

// has reports whether a node meets the requirement.
func (s *set) has(i int32) bool { return s.bits[i/64]&(1<<(i%64)) != 0 }

// build evaluates one batch of nodes, and reports whether all have been evaluated. The caller holds the lock.
func (s *set) build(v *Index) bool {
	for work := 0; s.next < len(v.nodes) && !s.costly; s.next++ {
		if work > turnWork {
			return false
		}
		if v.nodes[s.next].name == "" {
			continue
		}
		cost := s.judge(v, int32(s.next), &produced{index: v, node: &v.nodes[s.next]}) //nolint:gosec // see number
		work += cost + nodeWork
		if s.req.ReadsMatched() {
			work += rulesWork
		}
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

// giveUp records that no node matches because evaluation takes too much work. It applies to all nodes, since replicas evaluate them
// in different orders.
func (s *set) giveUp(v *Index) {
	s.costly, s.kinds = true, map[kind]verdict{}
	for i := range v.nodes {
		if v.nodes[i].name != "" {
			s.judge(v, int32(i), nil) //nolint:gosec // see number
		}
	}
}

// grow makes room for a node number.
func (s *set) grow(i int32) {
	for int(i)/64 >= len(s.bits) {
		s.bits = append(s.bits, 0)
		s.why = append(s.why, make([]uint8, 64)...)
	}
}

// judge evaluates a node, and returns the work that it took without that of rules.
func (s *set) judge(v *Index, i int32, of *produced) (cost int) {
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
	ok, cost, err := s.req.EvalCosting(n.inputFor(s.req), of.read(s.req))
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

// kindOf returns everything that the result for a node depends on, or false if it depends on the node itself.
func (s *set) kindOf(n *node) (k kind, ok bool) {
	if len(s.keys) > maxReads || facts.Lookup(n.in.Facts, unreadKey) != nil || s.req.PerNode() || s.req.ReadsMatched() {
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

// clear removes the result for a node.
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

// explain determines one batch of missing reasons, and reports whether none is left. The caller holds the lock.
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
			of := &produced{index: v, node: node}
			found = verdict{reason: s.reason(s.req.Lacks(node.inputFor(s.req), of.read(s.req)))}
			work += 2 * s.most // evaluated, and scanned
			if s.req.ReadsMatched() {
				work += rulesWork
			}
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

// reason returns the number of a reason.
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

// set returns the set of a requirement, and creates it if there is none: build must be called until it is complete. The caller
// holds the lock.
func (v *Index) set(req *requirements.Requirement) *set {
	v.clock++
	if s := v.sets[req.Key]; s != nil {
		s.used.Store(v.clock)
		return s
	}
	for len(v.sets) >= maxSets || len(v.sets) > 0 && v.bytes()+req.Size() > maxSetBytes {
		v.forgetOldest()
	}
	if v.reads != nil {
		v.reads(req.Reads())
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
	}
	s.bits = make([]uint64, 0, (len(v.nodes)+63)/64)
	s.why = make([]uint8, 0, 64*cap(s.bits))
	return s
}

// Memory of a set in bytes in addition to its requirement: the fixed part, a cached result, and a byte of a reason, which is stored
// in four forms.
const (
	setBytes     = 1024
	verdictBytes = 176
	reasonBytes  = 4
)

// bytes returns the memory of the set.
func (s *set) bytes() int {
	n := setBytes + s.req.Size() + 8*cap(s.bits) + cap(s.why) + 4*cap(s.pending) + verdictBytes*len(s.kinds)
	for i := range s.reasons {
		n += reasonBytes * len(s.reasons[i].Text)
	}
	return n
}

// bytes returns the memory of all sets.
func (v *Index) bytes() (n int) {
	for _, s := range v.sets {
		n += s.bytes()
	}
	return n
}

// Sweep deletes requirements that have not been used since the last Sweep.
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
}
