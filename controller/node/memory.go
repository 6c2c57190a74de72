package node

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/rules/plan"
)

// memory is the state of nodes that is kept between passes. All of it can be lost at any time: a restart causes evaluations, but no
// writes.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*memo
}

// memo is the state of one node. Only one pass uses it at a time, since the queue never processes a name concurrently.
type memo struct {
	uid      types.UID
	boot     string    // boot of the node in the last pass
	written  string    // resourceVersion of the last write
	nudged   time.Time // when schedulers were last notified of changed features
	refusals map[string]refusal

	given *provenance.Given // by the rules in the last pass that was carried out; nil: there was none
	said  map[any]bool      // messages of the rules in the last pass; nil: none
	// rejected counts the outputs that the last pass did not write.
	rejected rejections
	// held lists, by kind and key, the objects that could have given keys that the Node has and the outcome does not have.
	held map[string]heldKey

	publishers []string // NodeFeatures that counted in the last pass that held no removal, to name one that was deleted

	waits       string           // why a taint that evicts pods has to wait; empty if none has to
	left        map[string]bool  // desired outputs that the last pass did not write; nil if none
	unsure      bool             // the last pass failed, so the state of the Node is unknown
	fixing      []plan.Step      // keys that this pass corrects
	corrections flap.Corrections // of keys that another client changed

	kept     map[string]bool      // what the node keeps while its worker's facts are missing
	reported map[string]time.Time // until when keys wait, as Events have reported; by the reason and the name of the step
}

// heldKey is a key that a Node has although the rules do not produce it.
type heldKey struct {
	key    provenance.Key
	givers []provenance.Giver
}

// refusal is a value that the API server rejected.
type refusal struct {
	value string
	at    time.Time
}

// refusalMemory is how long a rejected value is not retried: it could be accepted after an upgrade, and retrying more often only
// fills the log of the API server.
const refusalMemory = 10 * time.Minute

func newMemory() *memory { return &memory{nodes: map[string]*memo{}} }

// of returns the state of this Node, not of a deleted one of the same name.
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

// newerThan reports whether this process has written to the node since the cached version was read: acting on that version could
// revert the write.
func (m *memo) newerThan(node *corev1.Node) bool { return older(node.ResourceVersion, m.written) }

func (m *memo) refuse(s plan.Step, now time.Time) {
	if m.refusals == nil {
		m.refusals = map[string]refusal{}
	}
	m.refusals[name(s)] = refusal{s.New, now}
}

// refuses reports whether a step was rejected recently, and how long not to retry it.
func (m *memo) refuses(s plan.Step, now time.Time) (time.Duration, bool) {
	if len(m.refusals) == 0 {
		return 0, false
	}
	last, ok := m.refusals[name(s)]
	if !ok || last.value != s.New {
		return 0, false
	}
	left := refusalMemory - now.Sub(last.at)
	return left, left > 0
}

// older compares resourceVersions of one object. They are increasing numbers (guaranteed by KEP-5504); other values count as not
// older.
func older(a, b string) bool {
	na, errA := strconv.ParseUint(a, 10, 64)
	nb, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && na < nb
}

// boots reports whether a node has booted since the last pass.
func (m *memo) boots(node *corev1.Node) bool {
	before, now := m.boot, node.Status.NodeInfo.BootID
	m.boot = now
	return before != "" && now != before
}
