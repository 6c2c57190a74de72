// Package intake bounds what connections and requests take from a server before they have arrived.
package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// announced is what a request weighs before the first byte of its body: a goroutine, its buffers, a stream of HTTP/2.
	announced = 16 << 10
	// firstRead is the most bytes of a body that are read under that weight.
	firstRead = 4 << 10
	// chunk is the most bytes of a body that get memory at a time. Nearly all bodies are smaller.
	chunk = 256 << 10
	// patience is the duration after which a body must make room for others, if memory is short. Bodies of API servers and
	// schedulers arrive within milliseconds.
	patience = 250 * time.Millisecond
	// retry is how often a request that waits for memory checks whether bodies have become too old.
	retry = 50 * time.Millisecond
)

var (
	// ErrBusy is returned if a request does not get memory in time, or if its body is so slow that it made room for others.
	ErrBusy = errors.New("too many requests at once")
	// ErrTooLarge is returned for a body beyond the limit.
	ErrTooLarge = errors.New("the request body is too large")
	// ErrCutShort is returned for a body that ends early, or does not arrive in time.
	ErrCutShort = errors.New("the request body is incomplete")
)

// Bodies reads bodies of requests within a bound of memory for all of them. A body that is only announced takes next to nothing,
// and if memory is short, those that arrive slowly make room: of the peer that holds most, the oldest first. Safe for concurrent
// use.
type Bodies struct {
	limit int64 // of one body, in bytes
	weigh func(size int64) int64
	slots *semaphore.Weighted

	mu      sync.Mutex
	reading []*reading       // in the order of their beginning
	held    map[string]int64 // by peer, of those in reading
}

// reading is a body that has not arrived in full.
type reading struct {
	peer    string
	began   time.Time
	w       http.ResponseWriter
	held    int64
	waiting bool // for the network; for memory otherwise
	evicted bool
}

// NewBodies returns Bodies of at most limit bytes each, which take at most memory together. Weigh returns what a request with a
// body of a size takes until it is answered.
func NewBodies(memory, limit int64, weigh func(size int64) int64) *Bodies {
	return &Bodies{limit: limit, weigh: weigh, slots: semaphore.NewWeighted(memory), held: map[string]int64{}}
}

// Read reads the body of a request into buf, which it may replace. The body holds its weight until release is called. The
// context bounds waiting for memory; the server's read timeout bounds waiting for the network.
func (b *Bodies) Read(ctx context.Context, w http.ResponseWriter, r *http.Request, buf []byte) (body []byte, release func(), err error) {
	if r.ContentLength > b.limit {
		return buf, nil, ErrTooLarge
	}
	rd := &reading{peer: host(r.RemoteAddr), began: time.Now(), w: w}
	b.begin(rd)
	body, err = b.read(ctx, rd, r, buf[:0])
	b.end(rd)
	if err != nil {
		b.slots.Release(rd.held)
		return body, nil, err
	}
	return body, func() { b.slots.Release(rd.held) }, nil
}

func (b *Bodies) read(ctx context.Context, rd *reading, r *http.Request, buf []byte) ([]byte, error) {
	next, weight := min(b.rest(r, buf), firstRead), int64(announced)
	for first := true; ; first = false {
		if err := b.acquire(ctx, rd, weight); err != nil {
			return buf, err
		}
		buf = slices.Grow(buf, int(next))
		n, evicted, err := b.network(rd, r.Body, buf[len(buf):len(buf)+int(next)], first)
		buf = buf[:len(buf)+n]
		size := int64(len(buf))
		switch {
		case size > b.limit:
			return buf, ErrTooLarge
		case evicted:
			return buf, ErrBusy
		case err != nil && (!errors.Is(err, io.EOF) || r.ContentLength > size):
			return buf, ErrCutShort
		case err != nil || r.ContentLength == size:
			return buf, b.acquire(ctx, rd, max(0, b.weigh(size)-rd.held))
		}
		next = min(b.rest(r, buf), chunk)
		// The first bytes are weighed with the first chunk, so that small bodies wait once.
		weight = max(0, b.weigh(size+next)-rd.held)
	}
}

// rest returns how much of a body is missing; of a body of unknown length, what would be one byte too many.
func (b *Bodies) rest(r *http.Request, buf []byte) int64 {
	if r.ContentLength >= 0 {
		return r.ContentLength - int64(len(buf))
	}
	return b.limit + 1 - int64(len(buf))
}

// network reads from the network: of the first bytes what there is, then as much as there is room for. It reports whether the
// body has made room for others meanwhile.
func (b *Bodies) network(rd *reading, from io.Reader, into []byte, first bool) (n int, evicted bool, err error) {
	b.wait(rd, true)
	for err == nil && n < len(into) && (n == 0 || !first) {
		var m int
		m, err = from.Read(into[n:])
		n += m
	}
	return n, b.wait(rd, false), err
}

// acquire waits until there is memory, for which slow bodies make room.
func (b *Bodies) acquire(ctx context.Context, rd *reading, n int64) error {
	for !b.slots.TryAcquire(n) {
		b.evict(n)
		wait, cancel := context.WithTimeout(ctx, retry)
		err := b.slots.Acquire(wait, n)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ErrBusy
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rd.held += n
	b.held[rd.peer] += n
	return nil
}

// evict ends slow bodies that hold n bytes together, if there are such.
func (b *Bodies) evict(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := time.Now().Add(-patience)
	for n > 0 {
		var worst *reading
		for _, rd := range b.reading {
			if rd.waiting && !rd.evicted && rd.began.Before(late) && (worst == nil || b.held[rd.peer] > b.held[worst.peer]) {
				worst = rd
			}
		}
		if worst == nil {
			return
		}
		n -= worst.held
		worst.evicted = true
		_ = http.NewResponseController(worst.w).SetReadDeadline(time.Unix(1, 0)) // a writer that cannot is one of a test
	}
}

func (b *Bodies) begin(rd *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = append(b.reading, rd)
}

// wait notes whether a body waits for the network, and reports whether it has made room for others.
func (b *Bodies) wait(rd *reading, waiting bool) (evicted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rd.waiting = waiting
	return rd.evicted
}

func (b *Bodies) end(rd *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.reading, rd)
	b.reading = slices.Delete(b.reading, i, i+1)
	if b.held[rd.peer] -= rd.held; b.held[rd.peer] <= 0 {
		delete(b.held, rd.peer)
	}
}

// host is an address without its port.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}
