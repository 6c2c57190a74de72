package extender

import (
	"encoding/json"
	"sync"

	"github.com/assay-project/assay/internal/asks"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/rules/request"
)

// The limits of what is remembered of pods. Pods of one owner have the same metadata, so that there are few in practice.
const (
	maxKnownPods  = 4096
	maxKnownBytes = 16 << 20
	// maxRemembered is how much metadata of one pod is worth remembering.
	maxRemembered = 64 << 10
)

// memo remembers what pods ask for by the JSON of the metadata that matters, so that it is decoded once. The zero value is
// empty. It is safe for concurrent use.
type memo struct {
	mu         sync.RWMutex
	known      map[string]asked
	bytes      int
	generation uint64
}

type asked struct {
	ask     *request.Ask
	problem *fleet.Reason
}

// of returns what a pod asks for, see asks.Asks.
func (m *memo) of(a *asks.Asks, p *pod) (*request.Ask, *fleet.Reason) {
	var space [1024]byte
	key := append(space[:0], p.namespace...)
	key = append(append(key, 0), p.labels...)
	key = append(append(key, 0), p.annotations...)
	generation := a.Generation()
	m.mu.RLock()
	known, ok := m.known[string(key)]
	ok = ok && m.generation == generation
	m.mu.RUnlock()
	if ok {
		return known.ask, known.problem
	}
	var labels, annotations map[string]string
	for _, part := range []struct {
		from span
		into *map[string]string
	}{{p.labels, &labels}, {p.annotations, &annotations}} {
		if part.from == nil {
			continue
		}
		if err := json.Unmarshal(part.from, part.into); err != nil {
			return nil, &unreadable
		}
	}
	var out asked
	out.ask, out.problem = a.Of(p.namespace.text(), labels, annotations)
	if len(key) <= maxRemembered {
		m.remember(string(key), out, generation)
	}
	return out.ask, out.problem
}

// remember stores what was found out while the generation was this one.
func (m *memo) remember(key string, out asked, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.generation != generation || m.known == nil || len(m.known) >= maxKnownPods || m.bytes+len(key) > maxKnownBytes {
		m.known, m.bytes, m.generation = map[string]asked{}, 0, generation
	}
	m.known[key] = out
	m.bytes += len(key)
}

var unreadable = fleet.NewReason("node feature requirement not met: the metadata of the pod cannot be read")
