// Package intake limits the resources that connections and incomplete requests take from a server.
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
	// announced is the cost in bytes of a request before its body: a goroutine, buffers, an HTTP/2 stream.
	announced = 16 << 10
	// firstRead is the maximum number of bytes of a body that are included in this cost.
	firstRead = 4 << 10
	// chunk is the maximum number of bytes of a body that are allocated at a time. Most bodies are smaller.
	chunk = 256 << 10
	// patience is the time after which a slow body is canceled if memory is short. Bodies from API servers and schedulers arrive
	// within milliseconds.
	patience = 250 * time.Millisecond
	// retry is the interval at which a request that waits for memory checks for slow bodies.
	retry = 50 * time.Millisecond
)

var (
	// ErrBusy is returned if a request does not get memory in time, or if its body was too slow and was canceled.
	ErrBusy = errors.New("too many requests at once")
	// ErrTooLarge is returned for a body that exceeds the limit.
	ErrTooLarge = errors.New("the request body is too large")
	// ErrCutShort is returned for a body that ends early or does not arrive in time.
	ErrCutShort = errors.New("the request body is incomplete")
)

// Bodies reads request bodies within a total memory limit. A body that has not arrived takes almost no memory. If memory is short,
// slow bodies are canceled: those of the peer that holds the most memory, oldest first. It is safe for concurrent use.
type Bodies struct {
	limit int64 // maximum size of one body in bytes
	weigh func(size int64) int64
	slots *semaphore.Weighted

	mu      sync.Mutex
	reading []*reading       // ordered by start
	held    map[string]int64 // memory of the bodies in reading, by peer
}

// reading is a body that has not been read completely.
type reading struct {
	peer    string
	began   time.Time
	w       http.ResponseWriter
	held    int64
	waiting bool // waiting for the network, otherwise for memory
	evicted bool
}

// NewBodies returns Bodies with a maximum size of limit bytes each and a total of memory bytes. weigh returns the memory that a
// request with a body of the given size takes until it is answered.
func NewBodies(memory, limit int64, weigh func(size int64) int64) *Bodies {
	return &Bodies{limit: limit, weigh: weigh, slots: semaphore.NewWeighted(memory), held: map[string]int64{}}
}

// Read reads the body of a request into buf, which it may reallocate. The body's memory is reserved until release is called. The
// context limits the time to wait for memory; the server's read timeout limits the time to wait for the network.
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
		// The first bytes are counted with the first chunk, so that small bodies wait only once.
		weight = max(0, b.weigh(size+next)-rd.held)
	}
}

// rest returns the number of bytes to read: the missing bytes of a body, or up to one byte more than the limit if the length is
// unknown.
func (b *Bodies) rest(r *http.Request, buf []byte) int64 {
	if r.ContentLength >= 0 {
		return r.ContentLength - int64(len(buf))
	}
	return b.limit + 1 - int64(len(buf))
}

// network reads from the network: for the first read the available bytes, then until into is full. It reports whether the body was
// canceled in the meantime.
func (b *Bodies) network(rd *reading, from io.Reader, into []byte, first bool) (n int, evicted bool, err error) {
	b.wait(rd, true)
	for err == nil && n < len(into) && (n == 0 || !first) {
		var m int
		m, err = from.Read(into[n:])
		n += m
	}
	return n, b.wait(rd, false), err
}

// acquire waits until memory is available, and cancels slow bodies if necessary.
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

// evict cancels slow bodies that hold n bytes together, if there are any.
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
		_ = http.NewResponseController(worst.w).SetReadDeadline(time.Unix(1, 0)) // only writers in tests do not support it
	}
}

func (b *Bodies) begin(rd *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = append(b.reading, rd)
}

// wait records whether a body waits for the network, and reports whether it was canceled.
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

// host returns an address without its port.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}
