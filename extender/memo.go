package extender

import (
	"encoding/binary"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/lru"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// maxKnownBytes is the maximum memory in bytes for cached requirements of pods: their metadata and the compiled requirements.
	// Pods of one owner have the same metadata, so that there are few entries in practice.
	maxKnownBytes = 16 << 20
	// forgetAfter is how long an entry is kept that no scheduler uses: its pods are placed or deleted. A scheduler retries a pod
	// that fits on no node after at most five minutes.
	forgetAfter = 10 * time.Minute
)

// memo caches the requirements of pods by the JSON of the relevant metadata, so that it is decoded and compiled once. It is safe
// for concurrent use; the zero value is empty.
type memo struct {
	once       sync.Once
	known      *lru.Cache[resolved]
	generation atomic.Uint64
}

func (m *memo) cache() *lru.Cache[resolved] {
	m.once.Do(func() { m.known = lru.New[resolved](maxKnownBytes) })
	return m.known
}

type resolved struct {
	requirements *requirements.Requirements
	problem      *index.Reason
}

// of returns the requirements of a pod, see podrequirements.Resolver.
func (m *memo) of(a *podrequirements.Resolver, p *pod) (*requirements.Requirements, *index.Reason) {
	var space [1024]byte
	generation := a.Generation()
	// The key includes the generation, so that no entry is used after a change.
	key := binary.LittleEndian.AppendUint64(space[:0], generation)
	key = append(append(key, p.namespace...), 0)
	key = append(append(key, p.labels...), 0)
	key = append(key, p.annotations...)
	if m.generation.Swap(generation) != generation {
		m.cache().Clear()
	}
	if known, ok := m.cache().Get(key); ok {
		return known.requirements, known.problem
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
			return nil, unreadable
		}
	}
	var out resolved
	var problem string
	if out.requirements, problem = a.Of(p.namespace.text(), labels, annotations); problem != "" {
		out.problem = index.NotMet(problem)
	}
	m.cache().Put(string(key), out, out.requirements.Size())
	return out.requirements, out.problem
}

var unreadable = index.NotMet("the metadata of the pod cannot be read")
