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
	// maxKnownBytes is the maximum memory in bytes to remember what pods require: their metadata and the compiled requirements. Pods of
	// one owner have the same metadata, so that there are few in practice.
	maxKnownBytes = 16 << 20
	// forgetAfter is when something is forgotten that no scheduler has asked for: its pods are placed or gone. A scheduler tries a pod
	// that fits nowhere again after five minutes at most.
	forgetAfter = 10 * time.Minute
)

// memo remembers what pods ask for by the JSON of the metadata that matters, so that it is decoded and compiled once. It is safe for
// concurrent use; the zero value is empty.
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

// of returns what a pod requires, see podrequirements.Resolver.Of.
func (m *memo) of(a *podrequirements.Resolver, p *pod) (*requirements.Requirements, *index.Reason) {
	var space [1024]byte
	generation := a.Generation()
	// The generation is a part of the key, so that what was found out before a change is never used after it.
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
