package node

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// memory is what is remembered of nodes between passes. All of it can be lost at any time: a restart costs evaluations, and
// no write.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*memo
}

// memo is what is remembered of one node. It is used by one pass at a time, since the queue never hands out a name twice.
type memo struct {
	uid      types.UID
	outcome  *rules.Outcome // of the last pass; nil: there was none
	written  string         // resourceVersion of the last write
	nudged   time.Time      // when schedulers were last told of changed features
	refusals map[string]refusal

	gave   *rules.Outcome // of the last pass that was carried out; nil: there was none
	gaveBy *inForce       // the objects that were active then
	// held are, by kind and key, the objects that may have given what the Node has and the outcome does not want.
	held map[string]heldKey

	waits       string           // why a taint that evicts pods has to wait; empty: none has to
	left        map[string]bool  // what the last pass left out although it was wished for; nil: nothing
	unsure      bool             // the last pass failed, so that it is not known what is on the Node
	fixing      []plan.Step      // what this pass corrects
	corrections flap.Corrections // of keys that another client changed

	kept map[string]bool // what the node keeps while the pass is blind
}

// heldKey is a key that a Node has although the rules do not want it.
type heldKey struct {
	key    provenance.Key
	givers []provenance.Giver
}

// refusal is a value that the API server did not take.
type refusal struct {
	value string
	at    time.Time
}

// refusalMemory is how long a value that the API server refused is not tried again: what it refuses today may be allowed
// after an upgrade, and asking more often than this only fills its log.
const refusalMemory = 10 * time.Minute

func newMemory() *memory { return &memory{nodes: map[string]*memo{}} }

// of returns what is remembered of this very Node, not of one of the same name that it replaced.
func (m *memory) of(node *corev1.Node) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.nodes[node.Name]
	if known == nil || known.uid != node.UID {
		known = &memo{uid: node.UID}
		m.nodes[node.Name] = known
	}
	return known
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, name)
}

// newerThan reports whether this process has written to the node since the cached state was read: acting on it could undo
// the own write.
func (m *memo) newerThan(node *corev1.Node) bool { return older(node.ResourceVersion, m.written) }

func (m *memo) refuse(s plan.Step, now time.Time) {
	if m.refusals == nil {
		m.refusals = map[string]refusal{}
	}
	m.refusals[name(s)] = refusal{s.New, now}
}

// refuses reports whether a step was refused lately, and for how long not to try it again.
func (m *memo) refuses(s plan.Step, now time.Time) (time.Duration, bool) {
	last, ok := m.refusals[name(s)]
	if !ok || last.value != s.New {
		return 0, false
	}
	left := refusalMemory - now.Sub(last.at)
	return left, left > 0
}

// older compares resourceVersions of one object. They are numbers that grow (KEP-5504 makes that a promise); anything else
// counts as not older.
func older(a, b string) bool {
	na, errA := strconv.ParseUint(a, 10, 64)
	nb, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && na < nb
}
