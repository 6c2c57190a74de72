package node

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/assay-project/assay/controller/node/decide"
)

// memory is the state of nodes that is kept between passes. All of it can be lost at any time: a restart causes evaluations, but no
// writes.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*memo
}

// memo is the state of one node. Only one pass uses it at a time, since the queue never processes a name concurrently.
type memo struct {
	decide.Memory
	uid     types.UID
	born    time.Time    // by the clock of this process: a later jump of a clock makes the node neither older nor younger
	boot    string       // boot of the node in the last pass
	emitted map[any]bool // messages of the rules in the last pass; nil: none
	// worker is the last report of a configuration that the worker rejects.
	worker workerReport
	// rejected counts the outputs that the last pass did not write.
	rejected rejections
}

func newMemory() *memory { return &memory{nodes: map[string]*memo{}} }

// replaced reports whether the last pass over a Node of this name was over another Node, which has been deleted since.
func (m *memory) replaced(node *corev1.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.nodes[node.Name]
	return known != nil && known.uid != node.UID
}

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

// unsure returns the state of a Node if it is unknown whether this process has written to it; otherwise nil.
func (m *memory) unsure(name string) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.nodes[name]; known != nil && known.Unsure {
		return known
	}
	return nil
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, name)
}

// newerThan reports whether this process has written to the node since the cached version was read: acting on that version could
// revert the write.
func (m *memo) newerThan(node *corev1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, m.Written)
	return err == nil && order < 0
}

// boots reports whether a node has booted since the last pass.
func (m *memo) boots(node *corev1.Node) bool {
	before, now := m.boot, node.Status.NodeInfo.BootID
	m.boot = now
	return before != "" && now != before
}
