//go:build linux

// Package proxy forwards connections and requests, with faults.
package proxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// Wire is a set of connections. It can be frozen: connections stay open and new ones are accepted, but no byte arrives, as when a
// router drops packets or the other end is stopped. It is safe for concurrent use.
type Wire struct {
	mu      sync.Mutex
	changed *sync.Cond
	frozen  bool
	refuse  bool
	delay   time.Duration
	open    map[*conn]struct{}
}

func newWire() *Wire {
	w := &Wire{open: map[*conn]struct{}{}}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// Freeze stops all traffic, Thaw continues it.
func (w *Wire) Freeze() { w.set(func() { w.frozen = true }) }

// Thaw is the inverse of Freeze.
func (w *Wire) Thaw() { w.set(func() { w.frozen = false }) }

// Refuse sets whether new connections are closed at once.
func (w *Wire) Refuse(refuse bool) { w.set(func() { w.refuse = refuse }) }

// Delay sets by how much each read is delayed.
func (w *Wire) Delay(d time.Duration) { w.set(func() { w.delay = d }) }

func (w *Wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.changed.Broadcast()
}

// Cut resets all connections, and returns how many there were.
func (w *Wire) Cut() int {
	w.mu.Lock()
	open := make([]*conn, 0, len(w.open))
	for c := range w.open {
		open = append(open, c)
	}
	w.mu.Unlock()
	for _, c := range open {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset instead of an orderly end
		}
		_ = c.Close()
	}
	return len(open)
}

// accept adds a connection; nil if it was refused.
func (w *Wire) accept(inner net.Conn) *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse {
		_ = inner.Close()
		return nil
	}
	c := &conn{Conn: inner, wire: w}
	w.open[c] = struct{}{}
	return c
}

// pass waits while the wire is frozen, and returns the delay.
func (w *Wire) pass(c *conn) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen && !c.closed {
		w.changed.Wait()
	}
	if c.closed {
		return 0, net.ErrClosed
	}
	return w.delay, nil
}

// conn is a connection of a Wire.
type conn struct {
	net.Conn
	wire   *Wire
	closed bool // guarded by wire.mu
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	delay, stopped := c.wire.pass(c)
	if stopped != nil {
		return 0, stopped
	}
	time.Sleep(delay)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if _, err := c.wire.pass(c); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.wire.set(func() { c.closed = true; delete(c.wire.open, c) })
	return c.Conn.Close()
}

// listener accepts the connections of a Wire.
type listener struct {
	net.Listener
	wire *Wire
}

func (l listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.wire.accept(inner); c != nil {
			return c, nil
		}
	}
}

// Relay forwards connections to an address. Close it at the end.
type Relay struct {
	*Wire
	listener net.Listener
	target   string
}

// NewRelay starts a relay on a free port of the loopback interface. It opens no connection after ctx is done.
func NewRelay(ctx context.Context, target string) (*Relay, error) {
	r := &Relay{Wire: newWire(), target: target}
	var err error
	if r.listener, err = r.listen(ctx); err != nil {
		return nil, err
	}
	go r.serve(ctx)
	return r, nil
}

// listen listens on a free port of the loopback interface.
func (w *Wire) listen(ctx context.Context) (net.Listener, error) {
	inner, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return listener{inner, w}, nil
}

// Address returns host:port of the relay.
func (r *Relay) Address() string { return r.listener.Addr().String() }

func (r *Relay) serve(ctx context.Context) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		go pump(in, out)
		go pump(out, in)
	}
}

func pump(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Close closes the relay and its connections.
func (r *Relay) Close() error {
	err := r.listener.Close()
	r.Cut()
	return err
}
