package intake

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

const (
	// maxConns is the maximum number of open connections. Each takes tens of kilobytes. API servers and schedulers need a few each.
	maxConns = 1024
	// maxPerPeer is the maximum number of open connections from one address. Several API servers may share an address, and without
	// HTTP/2 each concurrent request needs a connection.
	maxPerPeer = 256
)

// Listener limits the number of connections, in total and per peer. A new connection replaces another one: the oldest connection
// without an answered request, or else the connection whose last answer is the oldest. A connection with a request that has been
// received is never closed. It is safe for concurrent use.
type Listener struct {
	net.Listener

	mu    sync.Mutex
	conns map[*conn]struct{}
	peers map[string]int
	clock uint64 // logical clock, incremented by connections and answers
}

// Listen returns a Listener for a server whose ConnContext is ConnContext.
func Listen(l net.Listener) *Listener {
	return &Listener{Listener: l, conns: map[*conn]struct{}{}, peers: map[string]int{}}
}

// conn is an open connection.
type conn struct {
	net.Conn
	listener *Listener
	peer     string

	began, answered uint64 // answered is 0 before the first answer
	busy            int    // number of received requests
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, listener: l, peer: host(raw.RemoteAddr().String())}
		if l.admit(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// admit makes room for a connection and reports whether it can be accepted.
func (l *Listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	peer := c.peer
	if l.peers[peer] < maxPerPeer && len(l.conns) >= maxConns {
		for other, n := range l.peers {
			if n > l.peers[peer] {
				peer = other
			}
		}
	}
	if l.peers[peer] >= maxPerPeer || len(l.conns) >= maxConns {
		victim := l.victim(peer)
		if victim == nil {
			return false
		}
		l.remove(victim)
		_ = victim.Conn.Close()
	}
	l.clock++
	c.began = l.clock
	l.conns[c] = struct{}{}
	l.peers[c.peer]++
	return true
}

// victim returns the connection of a peer to close, or nil if all are in use.
func (l *Listener) victim(peer string) (worst *conn) {
	for c := range l.conns {
		if c.peer != peer || c.busy > 0 {
			continue
		}
		if worst == nil || c.answered < worst.answered || c.answered == worst.answered && c.began < worst.began {
			worst = c
		}
	}
	return worst
}

// remove removes a connection. The caller must hold the lock.
func (l *Listener) remove(c *conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if l.peers[c.peer]--; l.peers[c.peer] == 0 {
		delete(l.peers, c.peer)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext stores the connection for Arrived. It is for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Arrived records that a request has been received completely. answered must be called when it is answered. Arrived ignores
// requests whose connection is not from a Listener.
func Arrived(ctx context.Context) (answered func()) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return func() {}
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.busy--
		l.clock++
		c.answered = l.clock
	}
}
