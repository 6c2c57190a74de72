// Package rulestats counts the nodes that each rule matches.
package rulestats

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules"
)

// Stats counts the results of each rule object on all nodes. It is safe for concurrent use.
type Stats struct {
	mu      sync.Mutex
	nodes   map[string]*contribution
	objects map[string]*counts
	names   []string // of the objects, by number
	changed func(object string)

	complete completeness
}

// contribution is what one node adds to the counts.
type contribution struct {
	matched   []uint64                   // a bit for each object, by number
	failures  map[string]Complaint       // by object
	conflicts map[string]map[string]bool // by object: descriptions of conflicts
	failed    *rules.Failure             // the rule whose fail action froze the node
	flapping  map[string]string          // by object: the keys that are left as they are because they flap
	waiting   map[string]bool            // objects with outputs that the budget of health holds
}

type counts struct {
	number    int // of the object
	matched   int
	failures  map[string]Complaint // by node
	conflicts map[string]int       // by description: number of nodes
	rejected  map[string]string    // by node: message of the fail action
	flapping  map[string]string    // by node: the keys that flap
	waiting   map[string]bool      // nodes on which outputs wait for the budget of health
}

// Summary holds the counts for the status of an object.
type Summary struct {
	// Matched is the number of nodes that at least one of the rules matches.
	Matched int32
	// Failing is the number of nodes on which the evaluation of a rule failed, or its outputs may not be written; FirstNode is the first of
	// them by name, Message the error. Forbidden is true if it is that the controller lacks the right to write.
	Failing   int
	FirstNode string
	Message   string
	Forbidden bool
	// Conflicts describes keys for which another rule has another value, sorted, at most ten.
	Conflicts []string
	// MoreConflicts is the number of further conflicts.
	MoreConflicts int
	// Rejected is the number of nodes that a fail action of the object froze; RejectedNode is the first of them by name, Rejection
	// the message of the action.
	Rejected     int
	RejectedNode string
	Rejection    string
	// Flapping is the number of nodes on which keys of the rules are left as they are because they change too often. FlappingKeys are these
	// keys, each with its node before them, sorted, of at most maxFlapping nodes.
	Flapping     int
	FlappingKeys []string
	// Waiting is the number of nodes on which the budget of health holds outputs; WaitingNodes are the first of them by name, at most
	// maxFlapping.
	Waiting      int
	WaitingNodes []string
}

// maxConflicts is the maximum number of conflicts in a status: enough for diagnosis, few enough to read.
const maxConflicts = 10

// maxFlapping is the maximum number of nodes with flapping or waiting keys in a status. Their number is the sign of a cause that they share, and a few
// are enough to find it.
const maxFlapping = 5

// New returns empty Stats that calls changed with the name of each object whose summary has changed.
func New(changed func(object string)) *Stats {
	_, _ = failedNodes(), flappingNodes() // a metric that appears with its first value hides the change to it
	return &Stats{nodes: map[string]*contribution{}, objects: map[string]*counts{}, changed: changed}
}

// Complaint is a problem with the rules of an object on a node in addition to the outcome. Forbidden is true if the API server does not let the
// controller write what they give.
type Complaint struct {
	Object, Message string
	Forbidden       bool
}

// Report replaces the contribution of a node. Flapping are the keys that are left as they are because they change too often, sorted, by the
// object that gives them, or "" if that is none. Waiting are the objects with outputs that the budget of health holds.
func (t *Stats) Report(node string, outcome *rules.Outcome, flapping map[string][]string, waiting map[string]bool, complaints ...Complaint) {
	next := contribute(outcome, flapping, complaints)
	next.waiting = waiting
	t.mu.Lock()
	outcome.Matched(func(object string) { next.match(t.of(object).number) })
	old := t.nodes[node]
	if old.equal(next) {
		t.mu.Unlock()
		return
	}
	touched := map[string]bool{}
	t.subtract(node, old, touched)
	t.add(node, next, touched)
	t.nodes[node] = next
	t.mu.Unlock()
	t.notify(touched)
}

// Nodes returns the number of nodes that have reported.
func (t *Stats) Nodes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}

// Forget removes the contribution of a node.
func (t *Stats) Forget(node string) {
	t.mu.Lock()
	touched := map[string]bool{}
	t.subtract(node, t.nodes[node], touched)
	delete(t.nodes, node)
	t.mu.Unlock()
	t.notify(touched)
}

// Summary returns the counts of one object.
func (t *Stats) Summary(object string) Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.objects[object]
	if c == nil {
		return Summary{}
	}
	out := Summary{Matched: int32(c.matched), Failing: len(c.failures)}
	for node, f := range c.failures {
		if out.FirstNode == "" || node < out.FirstNode {
			out.FirstNode, out.Message, out.Forbidden = node, f.Message, f.Forbidden
		}
	}
	out.Rejected = len(c.rejected)
	for node, message := range c.rejected {
		if out.RejectedNode == "" || node < out.RejectedNode {
			out.RejectedNode, out.Rejection = node, message
		}
	}
	out.Flapping = len(c.flapping)
	for _, node := range slices.Sorted(maps.Keys(c.flapping))[:min(len(c.flapping), maxFlapping)] {
		out.FlappingKeys = append(out.FlappingKeys, node+": "+c.flapping[node])
	}
	out.Waiting, out.WaitingNodes = len(c.waiting), slices.Sorted(maps.Keys(c.waiting))[:min(len(c.waiting), maxFlapping)]
	for text := range c.conflicts {
		out.Conflicts = append(out.Conflicts, text)
	}
	slices.SortFunc(out.Conflicts, func(a, b string) int {
		keyA, _, _ := strings.Cut(a, ": ")
		keyB, _, _ := strings.Cut(b, ": ")
		return cmp.Or(hold.Compare(keyA, keyB), cmp.Compare(a, b))
	})
	if extra := len(out.Conflicts) - maxConflicts; extra > 0 {
		out.Conflicts, out.MoreConflicts = out.Conflicts[:maxConflicts], extra
	}
	return out
}

func contribute(o *rules.Outcome, flapping map[string][]string, complaints []Complaint) *contribution {
	c := &contribution{failed: o.Failed}
	for object, keys := range flapping {
		if c.flapping == nil {
			c.flapping = map[string]string{}
		}
		c.flapping[object] = hold.Some(keys)
	}
	for _, r := range o.Faulty() {
		if r.Err != nil {
			c.fail(Complaint{Object: r.Object, Message: fmt.Sprintf("rule %q: %v", r.Rule, r.Err)})
		}
		if r.Partial != nil && !r.Sensitive {
			c.fail(Complaint{Object: r.Object, Message: fmt.Sprintf("rule %q is evaluated on incomplete features: %v", r.Rule, r.Partial)})
		}
	}
	for _, r := range o.Rejected() {
		if !r.Missing && r.Object != "" {
			c.fail(Complaint{Object: r.Object, Message: fmt.Sprintf("rule %q: %s %q: %s", r.Rule, r.Kind, r.Key, r.Reason)})
		}
	}
	for _, x := range complaints {
		c.fail(x)
	}
	for _, x := range o.Conflicts() {
		if c.conflicts == nil {
			c.conflicts = map[string]map[string]bool{}
		}
		text := fmt.Sprintf("%s %s: %s keeps it, %s loses it", x.Kind, x.Key, x.Kept, x.Lost)
		for _, object := range []string{x.Kept.Object, x.Lost.Object} {
			if c.conflicts[object] == nil {
				c.conflicts[object] = map[string]bool{}
			}
			c.conflicts[object][text] = true
		}
	}
	return c
}

// match sets the bit of an object that matches the node.
func (c *contribution) match(object int) {
	for len(c.matched) <= object/64 {
		c.matched = append(c.matched, 0)
	}
	c.matched[object/64] |= 1 << (object % 64)
}

// matching iterates over the numbers of the objects that match the node.
func (c *contribution) matching(yield func(object int) bool) {
	for i, word := range c.matched {
		for ; word != 0; word &= word - 1 {
			if !yield(64*i + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

func (c *contribution) equal(o *contribution) bool {
	return c != nil && slices.Equal(c.matched, o.matched) && maps.Equal(c.failures, o.failures) && maps.Equal(c.flapping, o.flapping) &&
		maps.Equal(c.waiting, o.waiting) &&
		maps.EqualFunc(c.conflicts, o.conflicts, maps.Equal[map[string]bool]) &&
		(c.failed == o.failed || c.failed != nil && o.failed != nil && *c.failed == *o.failed)
}

func (c *contribution) fail(f Complaint) {
	if c.failures == nil {
		c.failures = map[string]Complaint{}
	}
	if _, ok := c.failures[f.Object]; !ok {
		c.failures[f.Object] = f
	}
}

func (t *Stats) of(object string) *counts {
	c := t.objects[object]
	if c == nil {
		c = &counts{
			number: len(t.names), failures: map[string]Complaint{}, conflicts: map[string]int{}, rejected: map[string]string{}, flapping: map[string]string{},
			waiting: map[string]bool{},
		}
		t.objects[object] = c
		t.names = append(t.names, object)
	}
	return c
}

func (t *Stats) add(node string, c *contribution, touched map[string]bool) {
	for i := range c.matching {
		t.of(t.names[i]).matched++
		touched[t.names[i]] = true
	}
	for object, f := range c.failures {
		t.of(object).failures[node] = f
		touched[object] = true
	}
	for object, descriptions := range c.conflicts {
		for text := range descriptions {
			t.of(object).conflicts[text]++
		}
		touched[object] = true
	}
	if f := c.failed; f != nil {
		t.of(f.Object).rejected[node] = fmt.Sprintf("rule %q: %s", f.Rule, f.Message)
		touched[f.Object] = true
		failedNodes().Inc()
	}
	for object := range c.waiting {
		t.of(object).waiting[node] = true
		touched[object] = true
	}
	for object, list := range c.flapping {
		if object == "" {
			continue
		}
		t.of(object).flapping[node] = list
		touched[object] = true
	}
	if len(c.flapping) > 0 {
		flappingNodes().Inc()
	}
}

func (t *Stats) subtract(node string, c *contribution, touched map[string]bool) {
	if c == nil {
		return
	}
	for i := range c.matching {
		t.of(t.names[i]).matched--
		touched[t.names[i]] = true
	}
	for object := range c.failures {
		delete(t.of(object).failures, node)
		touched[object] = true
	}
	for object, descriptions := range c.conflicts {
		counts := t.of(object).conflicts
		for text := range descriptions {
			if counts[text]--; counts[text] == 0 {
				delete(counts, text)
			}
		}
		touched[object] = true
	}
	if f := c.failed; f != nil {
		delete(t.of(f.Object).rejected, node)
		touched[f.Object] = true
		failedNodes().Dec()
	}
	for object := range c.waiting {
		delete(t.of(object).waiting, node)
		touched[object] = true
	}
	for object := range c.flapping {
		if object == "" {
			continue
		}
		delete(t.of(object).flapping, node)
		touched[object] = true
	}
	if len(c.flapping) > 0 {
		flappingNodes().Dec()
	}
}

func (t *Stats) notify(touched map[string]bool) {
	for object := range touched {
		t.changed(object)
	}
}
