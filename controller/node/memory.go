package node

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
)

// errConflict is returned when somebody else wrote the Node first; the queue tries again soon.
var errConflict = errors.New("the node has changed meanwhile; trying again")

// memory is what is remembered of nodes between passes. All of it can be lost at any time: a restart costs evaluations, and
// no write.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*memo
}

// memo is what is remembered of one node. It is used by one pass at a time, since the queue never hands out a name twice.
type memo struct {
	outcome    *rules.Outcome
	uid        string
	generation int64 // of the program that outcome is of
	written    string
	refused    string

	own      *feed.NodeFeature // the worker's object as last seen
	lostAt   time.Time         // since when it is gone; zero: it is there
	stranger bool              // it has never been there since this process started
	kept     map[string]bool   // what a stranger keeps until the grace period is over
}

func newMemory() *memory { return &memory{nodes: map[string]*memo{}} }

func (m *memory) of(name string) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.nodes[name]
	if known == nil {
		known = &memo{stranger: true}
		m.nodes[name] = known
	}
	return known
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, name)
}

// len is how many nodes are remembered.
func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.nodes)
}

// outcomeOf returns the last outcome for this very Node, not for one of the same name that it replaced.
func (m *memo) outcomeOf(node *corev1.Node) *rules.Outcome {
	if m.uid != string(node.UID) {
		m.uid = string(node.UID)
		m.outcome = nil
	}
	return m.outcome
}

// newerThan reports whether this process has written to the node since the cached state was read: acting on it could undo
// the own write.
func (m *memo) newerThan(node *corev1.Node) bool { return older(node.ResourceVersion, m.written) }

func (m *memo) wrote(version string) { m.written = version }
